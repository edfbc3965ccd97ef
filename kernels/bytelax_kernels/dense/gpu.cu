// times * onto + rms_norm(rows) @ matrix for 1 to 32 rows, or the gated half of a SwiGLU.
//
// One thread block of 16 warps on each multiprocessor. The matrix lies in panels of 8 columns,
// [P, D / C, 8, C] with C = 32 in bfloat16 and 16 in float32: a warp reads 512 contiguous bytes,
// and the 16 bytes of a lane are its operand of the tensor cores. A lane copies its own bytes to
// shared memory kAhead steps ahead, and alone reads them there: so they need no barrier. The warps
// meet only when they have multiplied as many panels as their sums have room for.
//
// Order of sums, whatever the number of rows: warp w adds chunks w, w + 16, ... of C numbers, then
// the 16 warps are added in order. So the bits of a row depend on nothing but the row.

#include <algorithm>

#include "../gpu.h"

namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps;
constexpr int kColumns = 8;  // of a panel
constexpr int kAhead = 8;    // steps that are copied ahead, 8 KB each
constexpr int kGroup = 128;  // threads that normalize a row together
constexpr int kMost = 32;    // rows

struct Product {
  const void *rows, *panels, *scale, *onto;  // scale and onto may be null
  void* out;
  int count, depth, panels_in_all, columns;  // columns: of the result
  float eps, times;
  bool gated;    // columns 2 j and 2 j + 1 of the panels are a gate and what it gates
  int together;  // panels whose sums have room
};

// Rows of the matrix that a warp multiplies in a step. So many numbers also stand between two rows
// in shared memory, so that no two lanes share a bank.
template <class Number>
constexpr int kChunk = 4 * Number::kEach;

// Bytes of shared memory, `gpu.py` counts them too: what is copied ahead, the rows, the norm's
// scale, the squares of the rows, what is added to the results; and the sums of a panel.
template <class Number>
int shared_bytes(const Product& p, int panels_of_block) {
  const int size = sizeof(typename Number::Type);
  return kAhead * kThreads * 16 + p.count * (p.depth + kChunk<Number>) * size + p.depth * size +
         p.count * 4 * 4 + panels_of_block * p.count * kColumns * size;
}
int bytes_of_sums(const Product& p) { return kWarps * p.count * kColumns * 4; }

// kHalves: groups of eight rows that there is room for.
template <class Number, int kHalves>
__global__ void __launch_bounds__(kThreads) dense(Product p) {
  using Type = typename Number::Type;
  constexpr int kTiles = (kHalves + 1) / 2, kEach = Number::kEach;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int block = blockIdx.x, blocks = gridDim.x;
  const int chunks = p.depth / kChunk<Number>, steps = (chunks + kWarps - 1) / kWarps;
  const int mine = (p.panels_in_all - block + blocks - 1) / blocks;  // panels of this block
  const int total = mine * steps, stride = p.depth + kChunk<Number>;
  const int width = p.gated ? kColumns / 2 : kColumns;  // results of a panel

  SHARED_MEMORY(memory);
  uint4* ring = reinterpret_cast<uint4*>(memory) + thread;
  Type* staged = reinterpret_cast<Type*>(memory + kAhead * kThreads * 16);
  Type* scale = staged + p.count * stride;
  float* squares = reinterpret_cast<float*>(scale + p.depth);
  float* sums = squares + 4 * p.count;
  Type* onto = reinterpret_cast<Type*>(sums + p.together * kWarps * p.count * kColumns);

  const int first = kEach * (thread % kGroup);
  auto copy_row = [&](Type* to, const void* from) {
    for (int k = first; k < p.depth; k += kEach * kGroup)
      copy_async(reinterpret_cast<uint4*>(to + k), static_cast<const uint4*>(from) + k / kEach);
  };
  for (int row = thread / kGroup; row < p.count; row += kThreads / kGroup)
    copy_row(staged + row * stride, static_cast<const Type*>(p.rows) + int64_t(row) * p.depth);
  if (p.scale && thread < kGroup) copy_row(scale, p.scale);
  end_of_copies();

  // The next copy: of this lane's 16 bytes of chunk `ahead` of a panel, at `next`.
  const uint4* next = static_cast<const uint4*>(p.panels);
  next += (int64_t(block) * chunks + warp) * 32 + lane;
  const int64_t to_next_panel = (int64_t(blocks) * chunks - steps * kWarps) * 32;
  int ahead = warp;
  auto copy = [&](int step) {
    if (step < total) {
      if (ahead < chunks) copy_async(ring + step % kAhead * kThreads, next);
      next += kWarps * 32, ahead += kWarps;
      if (ahead >= steps * kWarps) next += to_next_panel, ahead = warp;
    }
    end_of_copies();
  };
  for (int step = 0; step < kAhead; ++step) copy(step);

  if (p.onto) {
    for (int i = thread; i < mine * p.count * width; i += kThreads) {
      const int j = i % width, row = i / width % p.count, nth = i / width / p.count;
      const int column = (block + nth * blocks) * width + j;
      if (column < p.columns)
        onto[i] = static_cast<const Type*>(p.onto)[int64_t(row) * p.columns + column];
    }
  }
  wait_for_copies<kAhead>();
  __syncthreads();
  if (p.scale) {
    for (int row = thread / kGroup; row < p.count; row += kThreads / kGroup) {
      float square = 0;
      for (int k = first; k < p.depth; k += kEach * kGroup) {
        uint4* held = reinterpret_cast<uint4*>(staged + row * stride + k);
        float x[kEach], by[kEach];
        Number::unpack(*held, x);
        Number::unpack(*reinterpret_cast<const uint4*>(scale + k), by);
        for (int i = 0; i < kEach; ++i) square = square + x[i] * x[i], x[i] *= by[i];
        *held = Number::packed(x);
      }
      for (int other = 16; other; other /= 2) square += shuffle_xor(square, other);
      if (lane == 0) squares[4 * row + warp % 4] = square;
    }
    __syncthreads();
  }

  float c[kTiles][4] = {};
  const int group = lane / 4, part = lane % 4;
  auto multiply = [&](uint4 w, int chunk) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint4 low{0, 0, 0, 0}, high{0, 0, 0, 0};
      const int row = 16 * tile + group;
      const Type* from = staged + row * stride + chunk * kChunk<Number> + kEach * part;
      if (row < p.count) low = *reinterpret_cast<const uint4*>(from);
      if (kHalves > 1 && row + 8 < p.count)
        high = *reinterpret_cast<const uint4*>(from + 8 * stride);
      Number::multiply(c[tile], low, high, w);
    }
  };
  // Keeps this warp's sums for a panel: [together, warps, count, columns].
  auto keep = [&](int nth) {
    float* to = sums + (nth % p.together * kWarps + warp) * p.count * kColumns;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * tile + group + i / 2 * 8;
        if ((kHalves > 1 || i < 2) && row < p.count)
          to[row * kColumns + 2 * part + i % 2] = c[tile][i];
        c[tile][i] = 0;
      }
  };
  // Adds the sums of the warps for panels begin to end, and writes their results.
  auto finish = [&](int begin, int end) {
    for (int i = thread; i < (end - begin) * p.count * width; i += kThreads) {
      const int j = i % width, row = i / width % p.count, held = i / width / p.count;
      const int nth = begin + held, column = (block + nth * blocks) * width + j;
      if (column >= p.columns) continue;
      auto whole = [&](int j) {
        const float* from = sums + (held * kWarps * p.count + row) * kColumns + j;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum = sum + from[w * p.count * kColumns];
        return sum;
      };
      float factor = 1;
      if (p.scale) {
        const float* s = squares + 4 * row;
        factor = rsqrtf((((s[0] + s[1]) + s[2]) + s[3]) / p.depth + p.eps);
      }
      float sum = whole(p.gated ? 2 * j : j) * factor;
      if (p.gated) sum = sum / (1 + expf(-sum)) * (whole(2 * j + 1) * factor);
      if (p.onto) sum = sum + p.times * Number::widen(onto[(nth * p.count + row) * width + j]);
      static_cast<Type*>(p.out)[int64_t(row) * p.columns + column] = Number::narrow(sum);
    }
  };

  for (int step = 0, nth = 0, chunk = warp; step < total; ++step) {
    wait_for_copies<kAhead - 1>();
    if (chunk < chunks) multiply(ring[step % kAhead * kThreads], chunk);
    copy(step + kAhead);
    if ((chunk += kWarps) < steps * kWarps) continue;
    keep(nth++), chunk = warp;
    if (nth % p.together && nth < mine) continue;
    __syncthreads();
    finish((nth - 1) / p.together * p.together, nth);
    __syncthreads();
  }
}

template <class Number>
ffi::Error launched(Stream stream, Product p) {
  const Device device;
  if (device.error) return failure(device.error);
  // A block on each multiprocessor, or more where its panels have no room beside the rows.
  int blocks = std::min(p.panels_in_all, device.multiprocessors);
  auto mine = [&] { return (p.panels_in_all + blocks - 1) / blocks; };
  auto room = [&] { return (device.shared - shared_bytes<Number>(p, mine())) / bytes_of_sums(p); };
  while (room() < 1 && mine() > 1) blocks = std::min(p.panels_in_all, 2 * blocks);
  if (room() < 1 || p.count > kMost)
    return ffi::Error::InvalidArgument("dense: too many rows for shared memory");
  p.together = std::min(room(), mine());
  auto kernel = p.count <= 8    ? dense<Number, 1>
                : p.count <= 16 ? dense<Number, 2>
                                : dense<Number, kMost / 8>;
  return launch(stream, kernel, p, blocks, kThreads,
                shared_bytes<Number>(p, mine()) + p.together * bytes_of_sums(p), 1);
}

ffi::Error multiply(Stream stream, ffi::AnyBuffer rows, ffi::AnyBuffer panels, ffi::AnyBuffer scale,
                    ffi::AnyBuffer onto, ffi::Result<ffi::AnyBuffer> out, float eps, int64_t times,
                    bool gated) {
  auto given = [](ffi::AnyBuffer& x) { return x.element_count() ? x.untyped_data() : nullptr; };
  const Product p{given(rows),
                  given(panels),
                  given(scale),
                  given(onto),
                  out->untyped_data(),
                  int(rows.dimensions()[0]),
                  int(rows.dimensions()[1]),
                  int(panels.dimensions()[0]),
                  int(out->dimensions()[1]),
                  eps,
                  float(times),
                  gated,
                  0};
  const bool narrow = rows.element_type() == ffi::DataType::BF16;
  return narrow ? launched<Bfloat16>(stream, p) : launched<Float32>(stream, p);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bytelax_dense_gpu, multiply,
                              ffi::Ffi::Bind()
                                  .Ctx<StreamOfXla>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<float>("eps")
                                  .Attr<int64_t>("times")
                                  .Attr<bool>("gated"),
                              {ffi::Traits::kCmdBufferCompatible});
