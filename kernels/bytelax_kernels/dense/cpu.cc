// `dense` for processors: a product of few rows in one call with its norm and what follows it.
//
// The matrix lies in panels [columns / 32, depth, 32], so that it is read once from begin to end. The
// sums of a few rows by 32 columns stay in registers. Each sum runs over the depth in order, whatever
// the number of rows and threads, so that a row has the same bits beside any others.
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

#if defined(__AVX512F__)
constexpr int kMostRows = 12;  // of which sums stay in registers
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kMostRows = 3;
#else
constexpr int kMostRows = 1;
#endif

constexpr int kColumns = 32;  // of a panel
constexpr int kVectors = kColumns / kLanes;
// What a thread must find to do, so that handing it over pays: bytes of a matrix, or products of
// numbers.
constexpr int64_t kBytesOfAThread = 1 << 14, kProductsOfAThread = 1 << 15;

// Numbers of one column that lie beside one another: narrow ones in pairs.
template <typename W>
constexpr int kBeside = sizeof(W) < sizeof(float) ? 2 : 1;

// Whether this processor multiplies pairs of bfloat16.
#if defined(__AMX_BF16__) || defined(__AVX512BF16__)
constexpr bool kInPairs = true;
#else
constexpr bool kInPairs = false;
#endif

inline void unpack(const float* from, Vector (&numbers)[1]) { numbers[0] = wide(from); }

inline void unpack(const BFloat16* from, Vector (&numbers)[2]) {
  const Integers pairs = load<Integers>(from), first = pairs << 16, second = pairs & ~0xffff;
  numbers[0] = load<Vector>(&first);
  numbers[1] = load<Vector>(&second);
}

// Those of int8 are the upper bytes of integers, so numbers are `kTimes` what they stand for.
template <typename W>
constexpr float kTimes = sizeof(W) == 1 ? 1 << 24 : 1;

inline void unpack(const int8_t* from, Vector (&numbers)[2]) {
  const Integers pairs = integers(load<Halves>(from));
  numbers[0] = __builtin_convertvector(pairs << 24, Vector);
  numbers[1] = __builtin_convertvector((pairs & 0xff00) << 16, Vector);
}

// Pairs of bfloat16.
inline Integers in_pairs(const BFloat16* from) { return load<Integers>(from); }

inline Integers in_pairs(const int8_t* from) {
  Vector numbers[2];  // whose lower halves are zeros
  unpack(from, numbers);
  return Integers(Unsigned(numbers[0]) >> 16) | Integers(numbers[1]);
}

// The sums of some rows by the columns of a panel.
constexpr int kRowsOfATile = 16;
typedef float Sums[std::max(kMostRows, kRowsOfATile)][kColumns];

// Adds the products of `M` rows by a vector of columns, at one place of the depth or at a pair of them.
template <int M, typename W>
__attribute__((always_inline)) inline void add_products(const float* rows, int64_t depth, const W* from,
                                                        Vector (&sums)[M][kVectors], int v) {
  Vector weights[kBeside<W>];
  unpack(from, weights);
#pragma GCC unroll 2
  for (int d = 0; d < kBeside<W>; ++d) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) sums[m][v] += rows[m * depth + d] * weights[d];
  }
}

#if defined(__AVX512BF16__)
template <int M, typename W>
__attribute__((always_inline)) inline void add_products(const BFloat16* rows, int64_t depth, const W* from,
                                                        Vector (&sums)[M][kVectors], int v) {
  const __m512bh weights = __m512bh(in_pairs(from));
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    const __m512bh pair = __m512bh(Integers{} + load<int32_t>(rows + m * depth));
    sums[m][v] = Vector(_mm512_dpbf16_ps(__m512(sums[m][v]), weights, pair));
  }
}
#endif

// Asks the second cache for what is read `kAhead` bytes after the next `bytes` of a panel, line by line.
// Panels follow one another, so at the end of one that is the beginning of the next. With every second
// line alone, 2 KB ahead, five rows took 1.6 times as long as one on a Xeon; so they take about the same.
constexpr int64_t kAhead = 8192, kLine = 64;

template <int64_t bytes>
__attribute__((always_inline)) inline void fetch(const void* from) {
  const char* ahead = static_cast<const char*>(from) + kAhead;
#pragma GCC unroll 32
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(ahead + at, 0, 2);
}

// The sums of `M` rows by the columns of `P` panels, which lie `apart` numbers apart. They stay in
// registers: the loops over rows and vectors are unrolled.
template <int M, int P, typename X, typename W>
inline void multiply(const X* rows, int64_t depth, const W* panels, int64_t apart, Sums* sums) {
  constexpr int kDeep = kBeside<W>;
  Vector held[P][M][kVectors] = {};
  for (int64_t k = 0; k < depth; k += kDeep) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const W* here = panels + p * apart + k * kColumns;
      fetch<kDeep * kColumns * sizeof(W)>(here);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        add_products(rows + k, depth, here + v * kLanes * kDeep, held[p], v);
      }
    }
  }
  for (int p = 0; p < P; ++p) std::memcpy(sums[p], held[p], sizeof(held[p]));
}

#if defined(__AMX_BF16__)
constexpr int kDepthOfATile = 32;

// Keeps writes to memory before or behind the tiles that read it, of which the compiler knows nothing.
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
inline void multiply_in_tiles(const BFloat16* rows, int64_t depth, const W* panels, int64_t apart,
                              Sums* sums) {
  constexpr int kPairs = 2 * kColumns * sizeof(BFloat16), kRow = kColumns * sizeof(float);
  alignas(64) BFloat16 held[P][kDepthOfATile * kColumns];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < depth; k += kDepthOfATile) {
    _tile_loadd(4, rows + k, depth * sizeof(BFloat16));
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
  int64_t count, depth, columns;  // rows, and columns of the result
  bool gated;
  Result result;

  int64_t panels_of_a_half() const { return (columns + kColumns - 1) / kColumns; }

  // Panels whose sums are made together: of few rows two, because a sum waits for its last term.
  template <int M>
  static constexpr int kAtOnce = M <= kMostRows / 2 ? 2 : 1;

  // Makes the result of `M` rows in the columns of `P` panels.
  template <int M, int P>
  void block(int64_t row, int64_t panel) const {
    const X* x = rows + row * depth;
    const int64_t size = depth * kColumns, half = panels_of_a_half() * size;
    const W* from = panels + panel * size;
    Sums sums[2];
    if (!gated) {
      multiply<M, P>(x, depth, from, size, sums);
    } else if constexpr (kAtOnce<M> == 2) {
      multiply<M, 2>(x, depth, from, half, sums);
    } else {
      multiply<M, 1>(x, depth, from, half, sums);
      multiply<M, 1>(x, depth, from + half, half, sums + 1);
    }
    finish(row, M, panel, P, sums);
  }

  // Scales sums, gates them, and writes what becomes of them.
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

  template <int M>
  void rest(int64_t row, int64_t begin, int64_t end) const {
    if constexpr (M > 0) {
      if (count - row < M) return rest<M - 1>(row, begin, end);
      constexpr int P = kAtOnce<M>;
      int64_t panel = begin;
      if (!gated) {
        for (; panel + P <= end; panel += P) block<M, P>(row, panel);
      }
      for (; panel < end; ++panel) block<M, 1>(row, panel);
    }
  }

#if defined(__AMX_BF16__)
  void run_in_tiles(int64_t begin, int64_t end) const {
    const Tiles tiles(std::min<int64_t>(count, kRowsOfATile));
    const int64_t size = depth * kColumns, apart = gated ? panels_of_a_half() * size : size;
    Sums sums[2];
    for (int64_t panel = begin, most; panel < end; panel += most) {
      most = gated || panel + 1 == end ? 1 : 2;
      for (int64_t row = 0; row < count; row += kRowsOfATile) {
        const BFloat16* x = rows + row * depth;
        if (gated || most == 2) {
          multiply_in_tiles<2>(x, depth, panels + panel * size, apart, sums);
        } else {
          multiply_in_tiles<1>(x, depth, panels + panel * size, apart, sums);
        }
        finish(row, std::min<int64_t>(kRowsOfATile, count - row), panel, most, sums);
      }
    }
  }
#endif

  void run_in_vectors(int64_t begin, int64_t end) const {
    int64_t row = 0;
    for (; count - row > kMostRows; row += kMostRows) rest<kMostRows>(row, begin, end);
    rest<kMostRows>(row, begin, end);
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

// The rows of a call in float32, after the norm if there is one, each as long as a column of the
// panels. Rows of zeros, such as those of patches that are not there, are left out: their products
// are zeros.
struct Rows {
  std::vector<float> values;
  std::vector<BFloat16> narrow;  // the same for products of pairs, or empty
  std::vector<int64_t> places, zeros;
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
  out.values.resize(count * length);
  out.places.clear(), out.zeros.clear();
  for (int64_t row = 0; row < count; ++row, rows += depth) {
    float* own = out.values.data() + out.places.size() * length;
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
    // Beyond the rows a tile may read what it likes: nobody uses those sums.
    held.narrow.resize((count + kRowsOfATile) * length);
    by_vectors(held.places.size() * length, [&](int64_t at, int most) {
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
    if constexpr (kInPairs && kBeside<std::decay_t<decltype(*weights)>> == 2) {
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
