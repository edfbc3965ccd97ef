// `dense` for processors: a product of few rows in one call with its norm and what follows it.
//
// The matrix lies in panels [columns / 32, depth, 32], so that it is read once from beginning to end. The
// sums of a few rows by 32 columns stay in registers. More rows are multiplied by one stretch of a panel
// after another: the stretch stays in the first cache, and the sums wait in memory between stretches. Each
// sum runs over the depth in order, whatever the number of rows and threads, so that the bits of a row do
// not depend on the other rows.
//
// Some processors multiply rows of bfloat16 by a matrix of bfloat16 or int8 in pairs of numbers: twice as
// fast in vectors (AVX512-BF16), and up to 16 rows in little more than the time of one in tiles (AMX). For
// that reason the panels of a narrow matrix hold pairs, [columns / 32, depth / 2, 32, 2], and its depth is
// a multiple of a tile's.

#include <type_traits>
#include <vector>

#include "../native.h"

#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>

// Asks Linux for tiles, on behalf of the process; 0 if it may use them.
extern "C" long bytelax_ask_for_tiles() {
  constexpr int kRequest = 0x1023, kTiles = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTiles);
}
#endif

namespace {

constexpr int kColumns = 32;  // of a panel
constexpr int kVectors = kColumns / kLanes;

// Rows that are multiplied by a panel before the next panel is read.
constexpr int kRowsOfAPanel = 48;
// Places of the depth in a stretch of a panel, which stays in the first cache. Few rows take short ones, so
// that fetching ahead never pauses for long; more rows would load and store their sums too often. With AVX2
// nine rows gain and seventeen lose; AVX-512 has registers for the sums of twelve, which need no stretches.
constexpr int64_t kShortStretch = 32, kStretch = 128, kRowsOfShortStretches = 12;
static_assert(kShortStretch % 2 == 0 && kStretch % 2 == 0, "a stretch ends between two pairs of numbers");


// Work from which a thread of its own pays: bytes of a matrix, or products of numbers.
constexpr int64_t kBytesOfAThread = 1 << 14, kProductsOfAThread = 1 << 15;

// Numbers of one column that lie next to each other: narrow ones in pairs.
template <typename W>
constexpr int kAdjacent = sizeof(W) < sizeof(float) ? 2 : 1;

// Vectors of sums that stay in registers while a panel is read.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kSums = 24;
#elif defined(__AVX2__)
constexpr int kSums = 12;
#else
constexpr int kSums = kVectors;
#endif

// Rows whose sums by all columns of a panel stay there.
constexpr int kRowsOfAll = kSums / kVectors;
// Rows that are multiplied by two panels at once, because each term of a sum waits for the one before.
constexpr int kFewRows = std::max(kRowsOfAll / 2, 1);
// Rows that are multiplied at a time. Where registers are few, more rows take narrow numbers by half of a
// panel's columns, so that they are unpacked less often; one row less has room, because of the unpacking.
template <typename W>
constexpr int kMostRows = kVectors > 2 && kAdjacent<W> == 2 ? 2 * kRowsOfAll - 1 : kRowsOfAll;

// Whether this processor multiplies pairs of bfloat16.
#if defined(__AMX_BF16__) || defined(__AVX512BF16__)
constexpr bool kInPairs = true;
#else
constexpr bool kInPairs = false;
#endif

// Those of int8 are the upper bytes of integers, so numbers are `kTimes` what they stand for.
template <typename W>
constexpr float kTimes = sizeof(W) == 1 ? 1 << 24 : 1;

// A vector of columns: the first or the second of adjacent numbers. The sixteen registers of AVX2 have
// room for the sums, one row and one vector of columns. So there the second numbers are read from memory
// again, and so is the mask: compilers would keep both in registers, and sums in memory.
template <int which>
inline Vector unpacked(const float* from) {
  return wide(from);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
alignas(32) constexpr int32_t kUpper[kLanes] = {~0xffff, ~0xffff, ~0xffff, ~0xffff,
                                                ~0xffff, ~0xffff, ~0xffff, ~0xffff};

template <int which>
inline Vector unpacked(const BFloat16* from) {
  Integers bits = load<Integers>(from);
  if (which == 0) {
    bits = bits << 16;
  } else {
    __asm__("vpand %1, %0, %0" : "+x"(bits) : "m"(kUpper));
  }
  return load<Vector>(&bits);
}

template <int which>
inline Vector unpacked(const int8_t* from) {
  if (which == 0) return __builtin_convertvector(integers(load<Halves>(from)) << 24, Vector);
  Integers pairs;
  __asm__("vpmovzxwd %1, %0" : "=x"(pairs) : "m"(*reinterpret_cast<const char(*)[sizeof(Halves)]>(from)));
  return __builtin_convertvector((pairs >> 8) << 24, Vector);
}
#else
template <int which>
inline Vector unpacked(const BFloat16* from) {
  const Integers pairs = load<Integers>(from), bits = which == 0 ? pairs << 16 : pairs & ~0xffff;
  return load<Vector>(&bits);
}

template <int which>
inline Vector unpacked(const int8_t* from) {
  const Integers pairs = integers(load<Halves>(from));
  return __builtin_convertvector(which == 0 ? pairs << 24 : (pairs & 0xff00) << 16, Vector);
}
#endif

// Pairs of bfloat16.
inline Integers in_pairs(const BFloat16* from) { return load<Integers>(from); }

inline Integers in_pairs(const int8_t* from) {
  // The lower halves of these numbers are zeros.
  return Integers(Unsigned(unpacked<0>(from)) >> 16) | Integers(unpacked<1>(from));
}

constexpr int kRowsOfATile = 16;
static_assert(kRowsOfATile <= kRowsOfAPanel, "`Sums` has room for the rows of a tile");
// The sums of some rows by the columns of a panel.
typedef float Sums[kRowsOfAPanel][kColumns];

// Adds the products of `M` rows by `V` vectors of columns, at one place of the depth. If sums leave few
// registers free, the rows are held in them, and one vector of narrow columns is unpacked after the other.
template <int which, int M, int V, typename W>
__attribute__((always_inline)) inline void add_place(const float* rows, int64_t stride, const W* from,
                                                     Vector (&sums)[M][V]) {
  if constexpr (kAdjacent<W> == 2 && M * V == kSums && M < V) {
    Vector row[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) row[m] = rows[m * stride + which] - Vector{};
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Vector weights = unpacked<which>(from + v * kLanes * kAdjacent<W>);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) sums[m][v] += row[m] * weights;
    }
    return;
  }
  Vector weights[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) weights[v] = unpacked<which>(from + v * kLanes * kAdjacent<W>);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[m][v] += rows[m * stride + which] * weights[v];
  }
}

// The same at one place, or at two whose numbers are adjacent.
template <int M, int V, typename W>
__attribute__((always_inline)) inline void add_products(const float* rows, int64_t stride, const W* from,
                                                        Vector (&sums)[M][V]) {
  add_place<0>(rows, stride, from, sums);
  if constexpr (kAdjacent<W> == 2) add_place<1>(rows, stride, from, sums);
}

#if defined(__AVX512BF16__)
template <int M, int V, typename W>
__attribute__((always_inline)) inline void add_products(const BFloat16* rows, int64_t stride, const W* from,
                                                        Vector (&sums)[M][V]) {
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const __m512bh weights = __m512bh(in_pairs(from + v * kLanes * 2));
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const __m512bh pair = __m512bh(Integers{} + load<int32_t>(rows + m * stride));
      sums[m][v] = Vector(_mm512_dpbf16_ps(__m512(sums[m][v]), weights, pair));
    }
  }
}
#endif

// Asks the second cache for what is read `kAhead` bytes after the next `bytes` of a panel, line by line.
// Panels follow one another, so at the end of one that is the beginning of the next. With every second
// line alone, 2 KB ahead, five rows took 1.6 times as long as one on a Xeon; this way about as long.
constexpr int64_t kAhead = 8192, kLine = 64;

template <int64_t bytes>
__attribute__((always_inline)) inline void fetch(const void* from) {
  const char* ahead = static_cast<const char*>(from) + kAhead;
#pragma GCC unroll 32
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(ahead + at, 0, 2);
}

// Adds the products of `M` rows by `V` vectors of the columns of `P` panels, which lie `apart` numbers apart,
// at `steps` places of the depth. Sums stay in registers: loops over rows and vectors are unrolled. They are
// loaded and stored vector by vector, because GCC copies whole arrays through the stack.
template <int M, int V, int P, bool ahead, typename X, typename W>
__attribute__((noinline)) void add_rows(const X* rows, int64_t stride, int64_t steps, const W* panels,
                                        int64_t apart, float* sums) {
  constexpr int kDeep = kAdjacent<W>;
  Vector held[P][M][V];
  const auto row_of = [&](int p, int m) { return sums + (p * kRowsOfAPanel + m) * kColumns; };
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) held[p][m][v] = load<Vector>(row_of(p, m) + v * kLanes);
    }
  }
  for (int64_t k = 0; k < steps; k += kDeep) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const W* here = panels + p * apart + k * kColumns;
      if (ahead) fetch<kDeep * kColumns * sizeof(W)>(here);
      add_products(rows + k, stride, here, held[p]);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) store(held[p][m][v], row_of(p, m) + v * kLanes);
    }
  }
}

// The same for `count` rows, or for `M` if there are more, by all columns. Where they are multiplied by one
// part of the columns after the other, the first fetches the lines of all: every second one comes slower.
template <int M, int P, bool ahead, typename X, typename W>
inline void add_most(int64_t count, const X* rows, int64_t stride, int64_t steps, const W* panels,
                     int64_t apart, float* sums) {
  if constexpr (M > 1) {
    if (count < M) return add_most<M - 1, P, ahead>(count, rows, stride, steps, panels, apart, sums);
  }
  constexpr int V = M <= kRowsOfAll ? kVectors : kVectors / 2;
  add_rows<M, V, P, ahead>(rows, stride, steps, panels, apart, sums);
  for (int v = V; v < kVectors; v += V) {
    const W* from = panels + v * kLanes * kAdjacent<W>;
    add_rows<M, V, P, false>(rows, stride, steps, from, apart, sums + v * kLanes);
  }
}

// The sums of at most `M` rows by the columns of `P` panels.
template <int M, int P, typename X, typename W>
inline void multiply_few(int64_t count, const X* rows, int64_t stride, int64_t depth, const W* panels,
                         int64_t apart, Sums* sums) {
  for (int p = 0; p < P; ++p) std::fill_n(sums[p][0], count * kColumns, 0.0f);
  add_most<M, P, true>(count, rows, stride, depth, panels, apart, sums[0][0]);
}

// The sums of more rows by the columns of a panel.
template <typename X, typename W>
inline void multiply_many(int64_t count, const X* rows, int64_t stride, int64_t depth, const W* panel,
                          Sums& sums) {
  std::fill_n(sums[0], count * kColumns, 0.0f);
  const int64_t stretch = count <= kRowsOfShortStretches ? kShortStretch : kStretch;
  for (int64_t k = 0; k < depth; k += stretch) {
    const int64_t steps = std::min(stretch, depth - k);
    const W* here = panel + k * kColumns;
    constexpr int M = kMostRows<W>;
    add_most<M, 1, true>(count, rows + k, stride, steps, here, 0, sums[0]);
    for (int64_t row = M; row < count; row += M) {
      add_most<M, 1, false>(count - row, rows + row * stride + k, stride, steps, here, 0, sums[row]);
    }
  }
}

#if defined(__AMX_BF16__)
constexpr int kDepthOfATile = 32;

// Keeps writes to memory in order with reads by tiles, which the compiler does not see.
inline void keep_order() { __asm__ volatile("" ::: "memory"); }

// Tiles for products of `rows` rows, in this thread, as long as this lives: 0 to 3 hold sums, 4 the
// rows, and 5 and 6 weights.
class Tiles {
 public:
  explicit Tiles(int rows) {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {};
    } form;
    for (int tile = 0; tile < 7; ++tile) form.rows[tile] = tile < 5 ? rows : kDepthOfATile / 2;
    keep_order();
    _tile_loadconfig(&form);
  }
  ~Tiles() { _tile_release(); }
};

inline const BFloat16* as_bfloat16(const BFloat16* from, BFloat16*) { return from; }

inline const BFloat16* as_bfloat16(const int8_t* from, BFloat16* to) {
  for (int at = 0; at < kDepthOfATile * kColumns; at += 2 * kLanes) {
    const Integers pairs = in_pairs(from + at);
    std::memcpy(to + at, &pairs, sizeof(pairs));
  }
  return to;
}

// Adds the products of the rows by a panel, at one place of the depth, to two tiles of sums.
#define MULTIPLY_TILES(left, right, weights, bytes)   \
  keep_order();                                       \
  _tile_loadd(5, weights, bytes);                     \
  _tile_loadd(6, weights + kColumns, bytes);          \
  _tile_dpbf16ps(left, 4, 5);                         \
  _tile_dpbf16ps(right, 4, 6);                        \
  keep_order()

// As `multiply`, for the rows that the tiles of this thread are for.
template <int P, typename W>
inline void multiply_in_tiles(const BFloat16* rows, int64_t stride, int64_t depth, const W* panels,
                              int64_t apart, Sums* sums) {
  constexpr int kPairs = 2 * kColumns * sizeof(BFloat16), kRow = kColumns * sizeof(float);
  alignas(64) BFloat16 held[P][kDepthOfATile * kColumns];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < depth; k += kDepthOfATile) {
    _tile_loadd(4, rows + k, stride * sizeof(BFloat16));
    fetch<kDepthOfATile * kColumns * sizeof(W)>(panels + k * kColumns);
    const BFloat16* here = as_bfloat16(panels + k * kColumns, held[0]);
    MULTIPLY_TILES(0, 1, here, kPairs);
    if constexpr (P == 2) {
      fetch<kDepthOfATile * kColumns * sizeof(W)>(panels + apart + k * kColumns);
      here = as_bfloat16(panels + apart + k * kColumns, held[1]);
      MULTIPLY_TILES(2, 3, here, kPairs);
    }
  }
  _tile_stored(0, sums[0][0], kRow);
  _tile_stored(1, sums[0][0] + kColumns / 2, kRow);
  if constexpr (P == 2) {
    _tile_stored(2, sums[1][0], kRow);
    _tile_stored(3, sums[1][0] + kColumns / 2, kRow);
  }
}
#endif

// What follows a product, and where it is written.
struct Result {
  const void* onto;  // or null
  void* out;
  int64_t columns, times;
  void (*store)(const Result&, int64_t row, int64_t first, const float* sums);
};

template <typename X>
void store_panel(const Result& result, int64_t row, int64_t first, const float* sums) {
  const int64_t place = row * result.columns + first;
  const X* onto = static_cast<const X*>(result.onto);
  X* out = static_cast<X*>(result.out);
  by_vectors(std::min<int64_t>(kColumns, result.columns - first), [&](int64_t c, int most) {
    Vector x = begin_of(sums + c, most);
    if (onto != nullptr) {
      const Vector more = begin_of(onto + place + c, most);
      for (int64_t n = 0; n < result.times; ++n) x += more;
    }
    store_begin(x, out + place + c, most);
  });
}

// What a call multiplies.
template <typename X, typename W>
struct Product {
  const X* rows;  // normalized, without those of zeros
  const int64_t* places;  // of these rows in the result
  const W* panels;
  const float* column_scale;  // of an int8 matrix, or null
  int64_t count, stride, depth, columns;  // rows, how far apart they lie, and columns of the result
  bool gated;
  Result result;

  int64_t panels_of_a_half() const { return (columns + kColumns - 1) / kColumns; }

  // Makes the result of some rows in the columns of a panel, or of two if the rows are few.
  void block(int64_t row, int64_t some, int64_t panel, int64_t most) const {
    const X* x = rows + row * stride;
    const int64_t size = depth * kColumns, half = panels_of_a_half() * size;
    const W* from = panels + panel * size;
    Sums sums[2];
    if (some <= kFewRows && (gated || most == 2)) {
      multiply_few<kFewRows, 2>(some, x, stride, depth, from, gated ? half : size, sums);
    } else {
      multiply(some, x, from, sums[0]);
      if (gated) multiply(some, x, from + half, sums[1]);
    }
    finish(row, some, panel, most, sums);
  }

  // The sums of some rows by the columns of a panel.
  void multiply(int64_t some, const X* x, const W* panel, Sums& sums) const {
    if (some <= kRowsOfAll) {
      multiply_few<kRowsOfAll, 1>(some, x, stride, depth, panel, 0, &sums);
    } else {
      multiply_many(some, x, stride, depth, panel, sums);
    }
  }

  // Scales sums, gates them, and writes the results.
  void finish(int64_t row, int count, int64_t panel, int most, const Sums* sums) const {
    for (int p = 0; p < most; ++p) {
      const int64_t first = (panel + p) * kColumns;
      for (int m = 0; m < count; ++m) {
        float own[kColumns];
        for (int at = 0; at < kColumns; at += kLanes) {
          Vector value = scaled(sums[p][m] + at, first + at);
          if (gated) {
            const int64_t column = panels_of_a_half() * kColumns + first + at;
            value = value / (1.0f + exponential(-value)) * scaled(sums[1][m] + at, column);
          }
          store(value, own + at);
        }
        result.store(result, places[row + m], first, own);
      }
    }
  }

  Vector scaled(const float* sums, int64_t column) const {
    const Vector x = wide(sums) * (1 / kTimes<W>);
    return column_scale == nullptr ? x : x * wide(column_scale + column);
  }

#if defined(__AMX_BF16__)
  void run_in_tiles(int64_t begin, int64_t end) const {
    const Tiles tiles(std::min<int64_t>(count, kRowsOfATile));
    const int64_t size = depth * kColumns, apart = gated ? panels_of_a_half() * size : size;
    Sums sums[2];
    for (int64_t panel = begin, most; panel < end; panel += most) {
      most = gated || panel + 1 == end ? 1 : 2;
      for (int64_t row = 0; row < count; row += kRowsOfATile) {
        const BFloat16* x = rows + row * stride;
        if (gated || most == 2) {
          multiply_in_tiles<2>(x, stride, depth, panels + panel * size, apart, sums);
        } else {
          multiply_in_tiles<1>(x, stride, depth, panels + panel * size, apart, sums);
        }
        finish(row, std::min<int64_t>(kRowsOfATile, count - row), panel, most, sums);
      }
    }
  }
#endif

  void run_in_vectors(int64_t begin, int64_t end) const {
    for (int64_t panel = begin, most; panel < end; panel += most) {
      most = gated || count > kFewRows || panel + 1 == end ? 1 : 2;
      for (int64_t row = 0; row < count; row += kRowsOfAPanel) {
        block(row, std::min<int64_t>(kRowsOfAPanel, count - row), panel, most);
      }
    }
  }

  // Makes the columns of panels `begin` to `end`.
  void run(int64_t begin, int64_t end) const {
#if defined(__AMX_BF16__)
    if constexpr (std::is_same_v<X, BFloat16>) {
      return run_in_tiles(begin, end);
    } else
#endif
      run_in_vectors(begin, end);
  }
};

// Numbers between the rows of a call: if rows were whole pages apart, the same place of all of them would
// share a few lines of the cache.
constexpr int64_t kBetween = 32;

// The rows of a call in float32, after the norm if there is one, each as long as a column of the
// panels. Rows of zeros, such as those of patches that are not there, are left out: their products
// are zeros.
struct Rows {
  std::vector<float> values;
  std::vector<BFloat16> narrow;  // the same for products of pairs, or empty
  std::vector<int64_t> places, zeros;
  int64_t stride;  // numbers from one to the next
};

inline bool any(Integers x) {
  int32_t held[kLanes], all = 0;
  std::memcpy(held, &x, sizeof(held));
  for (const int32_t each : held) all |= each;
  return all;
}

template <typename X, typename S>
void prepare(const X* rows, const S* scale, float eps, int64_t count, int64_t depth, int64_t length,
             Rows& out) {
  out.stride = length + kBetween;
  out.values.resize(count * out.stride);
  out.places.clear(), out.zeros.clear();
  for (int64_t row = 0; row < count; ++row, rows += depth) {
    float* own = out.values.data() + out.places.size() * out.stride;
    Integers there = {};
    Vector parts[kVectors] = {};  // of the sum of squares, whose order depends on the depth alone
    by_vectors(depth, [&](int64_t at, int most) {
      const Vector x = begin_of(rows + at, most);
      store_begin(x, own + at, most);
      there |= x != 0;
      parts[at / kLanes % kVectors] += x * x;
    });
    std::fill(own + depth, own + length, 0.0f);
    const bool zeros = !any(there);
    (zeros ? out.zeros : out.places).push_back(row);
    if (zeros || scale == nullptr) continue;
    float squares[kColumns], sum = 0;
    std::memcpy(squares, parts, sizeof(squares));
    for (const float square : squares) sum += square;
    const float factor = 1 / std::sqrt(sum / depth + eps);
    by_vectors(depth, [&](int64_t at, int most) {
      store_begin(begin_of(own + at, most) * factor * begin_of(scale + at, most), own + at, most);
    });
  }
}

// Prepares the rows of a call, on the thread that it runs on.
template <typename X>
const Rows& prepared(const ffi::AnyBuffer& rows, const ffi::AnyBuffer& scale, float eps,
                     int64_t length) {
  thread_local Rows held;
  const int64_t count = rows.dimensions()[0], depth = rows.dimensions()[1];
  const X* x = static_cast<const X*>(rows.untyped_data());
  if (scale.element_count() == 0) {
    prepare<X, float>(x, nullptr, eps, count, depth, length, held);
  } else if (scale.element_type() == ffi::F32) {
    prepare(x, static_cast<const float*>(scale.untyped_data()), eps, count, depth, length, held);
  } else {
    prepare(x, static_cast<const BFloat16*>(scale.untyped_data()), eps, count, depth, length, held);
  }
  if constexpr (kInPairs && std::is_same_v<X, BFloat16>) {
    // A tile may read anything after the last row: those sums are not used.
    held.narrow.resize((count + kRowsOfATile) * held.stride);
    by_vectors(held.places.size() * held.stride, [&](int64_t at, int most) {
      store_begin(begin_of(held.values.data() + at, most), held.narrow.data() + at, most);
    });
  }
  return held;
}

ffi::Error dense(ffi::ThreadPool threads, ffi::AnyBuffer rows, ffi::AnyBuffer panels,
                 ffi::Buffer<ffi::F32> column_scale, ffi::AnyBuffer scale, ffi::AnyBuffer onto,
                 ffi::Result<ffi::AnyBuffer> out, float eps, int64_t times, bool gated) {
  const bool narrow = rows.element_type() == ffi::BF16;
  if (!narrow && rows.element_type() != ffi::F32) {
    return ffi::Error::InvalidArgument("rows are float32 or bfloat16");
  }
  const Result result{onto.element_count() ? onto.untyped_data() : nullptr, out->untyped_data(),
                      out->dimensions()[1], times, narrow ? store_panel<BFloat16> : store_panel<float>};
  const int64_t length = panels.element_count() / panels.dimensions()[0] / kColumns;
  const int64_t depth = rows.dimensions()[1];
  if (depth > length || length - depth >= kColumns) {
    return ffi::Error::InvalidArgument("rows are not as long as the columns of the panels");
  }
  const Rows& x = narrow ? prepared<BFloat16>(rows, scale, eps, length)
                         : prepared<float>(rows, scale, eps, length);
  const float nothing[kColumns] = {};
  for (const int64_t row : x.zeros) {
    for (int64_t first = 0; first < result.columns; first += kColumns) {
      result.store(result, row, first, nothing);
    }
  }
  if (x.places.empty()) return ffi::Error::Success();
  const auto multiplied = [&](const auto* values, const auto* weights) {
    const Product<std::decay_t<decltype(*values)>, std::decay_t<decltype(*weights)>> product{
        values,
        x.places.data(),
        weights,
        column_scale.element_count() ? column_scale.typed_data() : nullptr,
        static_cast<int64_t>(x.places.size()),
        x.stride,
        length,
        result.columns,
        gated,
        result,
    };
    const int64_t bytes = panels.size_bytes(), products = product.count * panels.element_count();
    const int64_t most = std::max(bytes / kBytesOfAThread, products / kProductsOfAThread);
    return share(threads, most, product.panels_of_a_half(), gated ? 1 : 2,
                 [&](int64_t begin, int64_t end) { product.run(begin, end); });
  };
  const auto run = [&](const auto* weights) {
    if constexpr (kInPairs && kAdjacent<std::decay_t<decltype(*weights)>> == 2) {
      if (narrow) return multiplied(x.narrow.data(), weights);
    }
    return multiplied(x.values.data(), weights);
  };
  const void* weights = panels.untyped_data();
  switch (panels.element_type()) {
    case ffi::F32:
      return run(static_cast<const float*>(weights));
    case ffi::BF16:
      return run(static_cast<const BFloat16*>(weights));
    case ffi::S8:
      return run(static_cast<const int8_t*>(weights));
    default:
      return ffi::Error::InvalidArgument("panels are float32, bfloat16 or int8");
  }
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(JOINED(bytelax_dense_, ISA), dense,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()         // rows
                                  .Arg<ffi::AnyBuffer>()         // panels
                                  .Arg<ffi::Buffer<ffi::F32>>()  // scales of columns
                                  .Arg<ffi::AnyBuffer>()         // scale of the norm
                                  .Arg<ffi::AnyBuffer>()         // onto
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<float>("eps")
                                  .Attr<int64_t>("times")
                                  .Attr<bool>("gated"));
