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
// From so many bytes of a matrix, or so many products of numbers, threads share its panels.
constexpr int64_t kSharedBytes = 1 << 19, kSharedProducts = 1 << 20;

// The sums of `M` rows by the columns of one panel. They stay in registers: the loops over rows and
// vectors are unrolled.
template <int M, typename W>
inline void multiply(const float* rows, int64_t depth, const W* panel, Vector (&sums)[M][kVectors]) {
  Vector held[M][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const W* here = panel + k * kColumns;
    __builtin_prefetch(here + 2048 / sizeof(W));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Vector weights = wide(here + v * kLanes);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) held[m][v] += rows[m * depth + k] * weights;
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
void store(const Result& result, int64_t row, int64_t first, const float* sums) {
  const int64_t place = row * result.columns + first;
  const X* onto = static_cast<const X*>(result.onto);
  X* out = static_cast<X*>(result.out);
  for (int64_t c = 0; c < std::min<int64_t>(kColumns, result.columns - first); ++c) {
    float x = sums[c];
    if (onto != nullptr) {
      for (int64_t n = 0; n < result.times; ++n) x += wide_one(onto[place + c]);
    }
    store_one(x, out + place + c);
  }
}

// What a call multiplies.
template <typename W>
struct Product {
  const float* rows;  // normalized
  const W* panels;
  const float* column_scale;  // of an int8 matrix, or null
  int64_t count, depth, columns;  // rows, and columns of the result
  bool gated;
  Result result;

  int64_t panels_of_a_half() const { return (columns + kColumns - 1) / kColumns; }

  template <int M>
  void block(int64_t row, int64_t panel) const {
    const int64_t size = depth * kColumns, halves = panels_of_a_half();
    Vector sums[M][kVectors], other[M][kVectors];
    multiply<M>(rows + row * depth, depth, panels + panel * size, sums);
    if (gated) multiply<M>(rows + row * depth, depth, panels + (halves + panel) * size, other);
    const int64_t first = panel * kColumns;
    for (int m = 0; m < M; ++m) {
      float own[kColumns];
      for (int v = 0; v < kVectors; ++v) {
        Vector x = scaled(sums[m][v], first + v * kLanes);
        if (gated) {
          const Vector y = scaled(other[m][v], halves * kColumns + first + v * kLanes);
          x = x / (1.0f + exponential(-x)) * y;
        }
        std::memcpy(own + v * kLanes, &x, sizeof(x));
      }
      result.store(result, row + m, first, own);
    }
  }

  Vector scaled(Vector x, int64_t column) const {
    return column_scale == nullptr ? x : x * load<Vector>(column_scale + column);
  }

  template <int M>
  void rest(int64_t row, int64_t panel) const {
    if constexpr (M > 0) {
      if (count - row == M) return block<M>(row, panel);
      rest<M - 1>(row, panel);
    }
  }

  void run(int64_t panel) const {
    int64_t row = 0;
    for (; count - row > kMostRows; row += kMostRows) block<kMostRows>(row, panel);
    rest<kMostRows>(row, panel);
  }
};

// Rows in float32, after the norm if there is one. The order of the sum depends on the depth alone.
template <typename X, typename S>
void prepare(const X* rows, const S* scale, float eps, int64_t count, int64_t depth, float* out) {
  for (int64_t row = 0; row < count; ++row, rows += depth, out += depth) {
    for (int64_t k = 0; k < depth; ++k) out[k] = wide_one(rows[k]);
    if (scale == nullptr) continue;
    float parts[kColumns] = {};
    for (int64_t k = 0; k < depth; k += kColumns) {
      const int64_t most = std::min<int64_t>(kColumns, depth - k);
      for (int64_t j = 0; j < most; ++j) parts[j] += out[k + j] * out[k + j];
    }
    float squares = 0;
    for (const float part : parts) squares += part;
    const float factor = 1 / std::sqrt(squares / depth + eps);
    for (int64_t k = 0; k < depth; ++k) out[k] = out[k] * factor * wide_one(scale[k]);
  }
}

// The rows of a call, prepared by the thread that it runs on.
template <typename X>
const float* prepared(const ffi::AnyBuffer& rows, const ffi::AnyBuffer& scale, float eps) {
  thread_local std::vector<float> held;
  const int64_t count = rows.dimensions()[0], depth = rows.dimensions()[1];
  held.resize(count * depth);
  const X* x = static_cast<const X*>(rows.untyped_data());
  if (scale.element_count() == 0) {
    prepare<X, float>(x, nullptr, eps, count, depth, held.data());
  } else if (scale.element_type() == ffi::F32) {
    prepare(x, static_cast<const float*>(scale.untyped_data()), eps, count, depth, held.data());
  } else {
    prepare(x, static_cast<const BFloat16*>(scale.untyped_data()), eps, count, depth, held.data());
  }
  return held.data();
}

ffi::Error dense(ffi::ThreadPool threads, ffi::AnyBuffer rows, ffi::AnyBuffer panels,
                 ffi::Buffer<ffi::F32> column_scale, ffi::AnyBuffer scale, ffi::AnyBuffer onto,
                 ffi::Result<ffi::AnyBuffer> out, float eps, int64_t times, bool gated) {
  const bool narrow = rows.element_type() == ffi::BF16;
  if (!narrow && rows.element_type() != ffi::F32) {
    return ffi::Error::InvalidArgument("rows are float32 or bfloat16");
  }
  const Result result{onto.element_count() ? onto.untyped_data() : nullptr, out->untyped_data(),
                      out->dimensions()[1], times, narrow ? store<BFloat16> : store<float>};
  const float* x =
      narrow ? prepared<BFloat16>(rows, scale, eps) : prepared<float>(rows, scale, eps);
  const auto run = [&](const auto* weights) {
    const Product<std::decay_t<decltype(*weights)>> product{
        x,
        weights,
        column_scale.element_count() ? column_scale.typed_data() : nullptr,
        rows.dimensions()[0],
        rows.dimensions()[1],
        result.columns,
        gated,
        result,
    };
    const int64_t bytes = panels.size_bytes(), products = product.count * panels.element_count();
    const bool alone = bytes < kSharedBytes && products < kSharedProducts;
    share(threads, alone ? 1 : threads.num_threads(), product.panels_of_a_half(),
          [&](int64_t panel) { product.run(panel); });
    return ffi::Error::Success();
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
