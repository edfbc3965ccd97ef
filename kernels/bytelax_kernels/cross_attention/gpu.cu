// The keys and values of a cross-attention: writing those of a window, and reading those of a patch.
//
// Both are one small kernel in place of two or more: launching them is what they cost. A row's bits
// depend on nothing but the row: a warp sums alone, in one order.

#include "../gpu.h"

namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kVectors = 8, kDim = 128;  // vectors of a patch and numbers of a head, at most

struct Write {
  const uint4* pairs;  // [B, W, k, 2, K, D], in units of 16 bytes as the rings are
  const int* slots_of;  // [B, W]
  uint4 *keys, *values;
  int batch, window, vectors, heads, units, slots;
  bool by_head;  // the rings are [B, K, S, D], of one vector each, and not [B, S, k, K, D]
};

__global__ void __launch_bounds__(kThreads) cross_write(Write a) {
  const int i = blockIdx.x * kThreads + threadIdx.x, each = a.heads * a.units;
  const int unit = i % a.units, head = i / a.units % a.heads, which = i / each % 2;
  const int vector = i / each / 2 % a.vectors, entry = i / each / 2 / a.vectors;
  if (entry >= a.batch * a.window) return;
  const int row = entry / a.window, slot = a.slots_of[entry];
  if (slot >= a.slots) return;  // it is not written
  const int64_t at = a.by_head
                         ? (int64_t(row) * a.heads + head) * a.slots + slot
                         : ((int64_t(row) * a.slots + slot) * a.vectors + vector) * a.heads + head;
  (which ? a.values : a.keys)[at * a.units + unit] = a.pairs[i];
}

struct Read {
  const void *queries, *keys, *values;  // [B, W, H, D], [B, S, k, K, D] twice
  const int* slots_of;                  // [B, W]
  void* out;                            // [B, W, H, D]
  int batch, window, heads, dim, slots, vectors, kv_heads;
};

template <class Number>
__global__ void __launch_bounds__(kThreads) cross_read(Read a) {
  using Type = typename Number::Type;
  const int lane = threadIdx.x % 32, warp = blockIdx.x * kWarps + threadIdx.x / 32;
  const int entry = warp / a.heads, head = warp % a.heads;
  if (entry >= a.batch * a.window) return;  // all lanes of the warp
  const int kv_head = head / (a.heads / a.kv_heads);
  const int64_t slot = int64_t(entry / a.window) * a.slots + a.slots_of[entry];
  const int64_t of_query = int64_t(warp) * a.dim;
  auto place = [&](int vector) {
    return ((slot * a.vectors + vector) * a.kv_heads + kv_head) * a.dim;
  };
  constexpr int kOwn = kDim / 32;
  float q[kOwn], scores[kVectors], highest = -INFINITY;
  for (int n = 0; n < kOwn; ++n) {
    const int d = lane + 32 * n;
    q[n] = d < a.dim ? Number::widen(static_cast<const Type*>(a.queries)[of_query + d]) : 0;
  }
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    float sum = 0;
    if (vector < a.vectors) {
      const Type* key = static_cast<const Type*>(a.keys) + place(vector);
      for (int n = 0; n < kOwn; ++n)
        if (lane + 32 * n < a.dim) sum = sum + q[n] * Number::widen(key[lane + 32 * n]);
      for (int other = 16; other; other /= 2) sum = sum + shuffle_xor(sum, other);
    }
    scores[vector] = vector < a.vectors ? sum * rsqrtf(float(a.dim)) : -INFINITY;
    highest = fmaxf(highest, scores[vector]);
  }
  float total = 0;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector)
    scores[vector] = expf(scores[vector] - highest), total = total + scores[vector];
  for (int n = 0; n < kOwn; ++n) {
    const int d = lane + 32 * n;
    if (d >= a.dim) continue;
    float sum = 0;
#pragma unroll
    for (int vector = 0; vector < kVectors; ++vector)
      if (vector < a.vectors)
        sum = sum + scores[vector] *
                        Number::widen(static_cast<const Type*>(a.values)[place(vector) + d]);
    static_cast<Type*>(a.out)[of_query + d] = Number::narrow(sum / total);
  }
}

ffi::Error write_pairs(Stream stream, ffi::AnyBuffer pairs, ffi::Buffer<ffi::S32> slots_of,
                       ffi::AnyBuffer, ffi::AnyBuffer, ffi::Result<ffi::AnyBuffer> keys,
                       ffi::Result<ffi::AnyBuffer> values, bool by_head) {
  const auto shape = pairs.dimensions();
  const int each = 16 / (pairs.element_type() == ffi::DataType::BF16 ? 2 : 4);
  const Write a{static_cast<const uint4*>(pairs.untyped_data()),
                slots_of.typed_data(),
                static_cast<uint4*>(keys->untyped_data()),
                static_cast<uint4*>(values->untyped_data()),
                int(shape[0]),
                int(shape[1]),
                int(shape[2]),
                int(shape[4]),
                int(shape[5]) / each,
                int(keys->dimensions()[by_head ? 2 : 1]),
                by_head};
  const int units = int(pairs.element_count()) / each;
  return launch(stream, cross_write, a, (units + kThreads - 1) / kThreads, kThreads, 0, 1);
}

ffi::Error read_pairs(Stream stream, ffi::AnyBuffer queries, ffi::Buffer<ffi::S32> slots_of,
                      ffi::AnyBuffer keys, ffi::AnyBuffer values, ffi::Result<ffi::AnyBuffer> out) {
  const auto shape = queries.dimensions(), ring = keys.dimensions();
  const Read a{queries.untyped_data(),
               keys.untyped_data(),
               values.untyped_data(),
               slots_of.typed_data(),
               out->untyped_data(),
               int(shape[0]),
               int(shape[1]),
               int(shape[2]),
               int(shape[3]),
               int(ring[1]),
               int(ring[2]),
               int(ring[3])};
  const bool narrow = queries.element_type() == ffi::DataType::BF16;
  const int blocks = (a.batch * a.window * a.heads + kWarps - 1) / kWarps;
  return launch(stream, narrow ? cross_read<Bfloat16> : cross_read<Float32>, a, blocks, kThreads, 0,
                1);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bytelax_cross_write_gpu, write_pairs,
                              ffi::Ffi::Bind()
                                  .Ctx<StreamOfXla>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<bool>("by_head"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(bytelax_cross_read_gpu, read_pairs,
                              ffi::Ffi::Bind()
                                  .Ctx<StreamOfXla>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>(),
                              {ffi::Traits::kCmdBufferCompatible});
