// `dense` for processors: a product of few rows in one call with its norm and what follows it.
//
// The matrix lies in panels [columns / 32, depth, 32], so that it is read once from begin to end. The
// sums of a few rows by 32 columns stay in registers. Each sum runs over the depth in order, whatever
// the number of rows and threads, so that a row has the same bits beside any others.

#include <vector>

#include "../native.h"

namespace {

#if defined(__AVX512F__)
constexpr int kMostRows = 12;
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

// The sums of `M` rows by the columns of `P` panels, which lie `apart` numbers apart. They stay in
// registers: the loops over rows and vectors are unrolled.
template <int M, int P, typename W>
inline void multiply(const float* rows, int64_t depth, const W* panels, int64_t apart,
                     Vector (&sums)[P][M][kVectors]) {
  Vector held[P][M][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const W* here = panels + p * apart + k * kColumns;
      __builtin_prefetch(here + 2048 / sizeof(W));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Vector weights = wide(here + v * kLanes);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) held[p][m][v] += rows[m * depth + k] * weights;
      }
    }
  }
  std::memcpy(sums, held, sizeof(held));
}

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
template <typename W>
struct Product {
  const float* rows;  // normalized, without those of zeros
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

  template <int M, int P>
  void block(int64_t row, int64_t panel) const {
    const int64_t size = depth * kColumns, halves = panels_of_a_half();
    const float* x = rows + row * depth;
    Vector sums[2][M][kVectors];
    if (gated) {
      constexpr int kHalves = kAtOnce<M>;
      for (int half = 0; half < 2; half += kHalves) {
        const W* from = panels + (half * halves + panel) * size;
        multiply<M, kHalves>(x, depth, from, halves * size,
                             reinterpret_cast<Vector(&)[kHalves][M][kVectors]>(sums[half]));
      }
    } else {
      multiply<M, P>(x, depth, panels + panel * size, size,
                     reinterpret_cast<Vector(&)[P][M][kVectors]>(sums));
    }
    for (int p = 0; p < P; ++p) {
      const int64_t first = (panel + p) * kColumns;
      for (int m = 0; m < M; ++m) {
        float own[kColumns];
        for (int v = 0; v < kVectors; ++v) {
          Vector value = scaled(sums[p][m][v], first + v * kLanes);
          if (gated) {
            const int64_t column = halves * kColumns + first + v * kLanes;
            value = value / (1.0f + exponential(-value)) * scaled(sums[1][m][v], column);
          }
          std::memcpy(own + v * kLanes, &value, sizeof(value));
        }
        result.store(result, places[row + m], first, own);
      }
    }
  }

  Vector scaled(Vector x, int64_t column) const {
    return column_scale == nullptr ? x : x * load<Vector>(column_scale + column);
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

  // Makes the columns of panels `begin` to `end`.
  void run(int64_t begin, int64_t end) const {
    int64_t row = 0;
    for (; count - row > kMostRows; row += kMostRows) rest<kMostRows>(row, begin, end);
    rest<kMostRows>(row, begin, end);
  }
};

// The rows of a call in float32, after the norm if there is one. Rows of zeros, such as those of
// patches that are not there, are left out: their products are zeros.
struct Rows {
  std::vector<float> values;
  std::vector<int64_t> places, zeros;
};

template <typename X, typename S>
void prepare(const X* rows, const S* scale, float eps, int64_t count, int64_t depth, Rows& out) {
  out.values.resize(count * depth);
  out.places.clear(), out.zeros.clear();
  for (int64_t row = 0; row < count; ++row, rows += depth) {
    float* own = out.values.data() + out.places.size() * depth;
    bool there = false;
    for (int64_t k = 0; k < depth; ++k) {
      own[k] = wide_one(rows[k]);
      there |= own[k] != 0;
    }
    (there ? out.places : out.zeros).push_back(row);
    if (!there || scale == nullptr) continue;
    // The order of the sum depends on the depth alone.
    float parts[kColumns] = {};
    for (int64_t k = 0; k < depth; k += kColumns) {
      const int64_t most = std::min<int64_t>(kColumns, depth - k);
      for (int64_t j = 0; j < most; ++j) parts[j] += own[k + j] * own[k + j];
    }
    float squares = 0;
    for (const float part : parts) squares += part;
    const float factor = 1 / std::sqrt(squares / depth + eps);
    for (int64_t k = 0; k < depth; ++k) own[k] = own[k] * factor * wide_one(scale[k]);
  }
}

// Prepares the rows of a call, on the thread that it runs on.
template <typename X>
const Rows& prepared(const ffi::AnyBuffer& rows, const ffi::AnyBuffer& scale, float eps) {
  thread_local Rows held;
  const int64_t count = rows.dimensions()[0], depth = rows.dimensions()[1];
  const X* x = static_cast<const X*>(rows.untyped_data());
  if (scale.element_count() == 0) {
    prepare<X, float>(x, nullptr, eps, count, depth, held);
  } else if (scale.element_type() == ffi::F32) {
    prepare(x, static_cast<const float*>(scale.untyped_data()), eps, count, depth, held);
  } else {
    prepare(x, static_cast<const BFloat16*>(scale.untyped_data()), eps, count, depth, held);
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
  const Rows& x =
      narrow ? prepared<BFloat16>(rows, scale, eps) : prepared<float>(rows, scale, eps);
  const float nothing[kColumns] = {};
  for (const int64_t row : x.zeros) {
    for (int64_t first = 0; first < result.columns; first += kColumns) {
      result.store(result, row, first, nothing);
    }
  }
  const auto run = [&](const auto* weights) {
    const Product<std::decay_t<decltype(*weights)>> product{
        x.values.data(),
        x.places.data(),
        weights,
        column_scale.element_count() ? column_scale.typed_data() : nullptr,
        static_cast<int64_t>(x.places.size()),
        rows.dimensions()[1],
        result.columns,
        gated,
        result,
    };
    const int64_t bytes = panels.size_bytes(), products = product.count * panels.element_count();
    const int64_t most = std::max(bytes / kBytesOfAThread, products / kProductsOfAThread);
    return share(threads, most, product.panels_of_a_half(), gated ? 1 : 2,
                 [&](int64_t begin, int64_t end) { product.run(begin, end); });
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
