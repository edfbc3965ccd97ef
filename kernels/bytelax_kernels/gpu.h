// What the kernels for NVIDIA GPUs share: the device's instructions, numbers, and launching.
//
// Without a GPU, `tests/helpers/emulated.h` takes the place of CUDA.

#ifndef BYTELAX_GPU_H_
#define BYTELAX_GPU_H_

#include <cstdint>
#include <string>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// Why a kernel did not start, with the way out; the command line prints it as it is.
inline ffi::Error failure(const char* reason) {
  return ffi::Error::Internal(std::string("a kernel of bytelax did not start on this GPU (") +
                              reason + "): BYTELAX_NATIVE=0 leaves it to XLA");
}

#ifndef BYTELAX_EMULATED
#include <cuda_runtime.h>

// The version of the interface to XLA that the library is compiled for.
extern "C" __attribute__((weak)) const int bytelax_interface = XLA_FFI_API_MINOR;
extern "C" __attribute__((weak)) const char* const bytelax_sources = SOURCES;

#define SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]

using Stream = cudaStream_t;
using StreamOfXla = ffi::PlatformStream<Stream>;

__device__ inline uint16_t rounded(float x) {
  uint16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

// Copies 16 bytes to shared memory, past L1, since weights and caches are read once.
__device__ inline void copy_async(uint4* to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(
                   uint32_t(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ inline void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for the groups of copies of this thread but for the last kLater.
template <int kLater>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

__device__ inline float shuffle_xor(float x, int other) { return __shfl_xor_sync(~0u, x, other); }

__device__ inline void mma_bfloat16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                    uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline void mma_tf32(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Thread blocks of a cluster wait for one another, and read the same place in another's memory.
__device__ inline void cluster_barrier() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
__device__ inline float* in_block(float* mine, int block) {
  return static_cast<float*>(__cluster_map_shared_rank(mine, block));
}

inline ffi::Error failure(cudaError_t error) {
  cudaGetLastError();  // or a call of XLA's would find this error
  return failure(cudaGetErrorString(error));
}

// What the kernels have to know of the GPU that they are started on.
struct Device {
  cudaError_t error = cudaSuccess;
  int multiprocessors = 0, shared = 0;  // bytes of shared memory that a thread block may use

  Device() {
    int device = 0;
    error = cudaGetDevice(&device);
    ask(cudaDevAttrMultiProcessorCount, device, &multiprocessors);
    ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, device, &shared);
  }

 private:
  void ask(cudaDeviceAttr which, int device, int* value) {
    if (!error) error = cudaDeviceGetAttribute(value, which, device);
  }
};

// Launches a kernel; `cluster` thread blocks share their memories.
template <class Arguments>
ffi::Error launch(Stream stream, void (*kernel)(Arguments), const Arguments& arguments, int blocks,
                  int threads, int shared, int cluster) {
  auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (!error) {
    cudaLaunchAttribute clusters{};
    clusters.id = cudaLaunchAttributeClusterDimension;
    clusters.val.clusterDim.x = cluster;
    clusters.val.clusterDim.y = clusters.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks), config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared, config.stream = stream;
    config.attrs = &clusters, config.numAttrs = cluster > 1;
    error = cudaLaunchKernelEx(&config, kernel, arguments);
  }
  return error ? failure(error) : ffi::Error::Success();
}
#endif  // BYTELAX_EMULATED

namespace {

// The dtypes. A lane reads 16 bytes of them at once.
struct Bfloat16 {
  using Type = uint16_t;
  static constexpr int kEach = 8;  // numbers in 16 bytes

  static __device__ float widen(Type x) { return __uint_as_float(uint32_t(x) << 16); }
  static __device__ Type narrow(float x) { return rounded(x); }

  static __device__ void unpack(uint4 x, float* to) {
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(pairs[i] << 16);
      to[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000);
    }
  }
  static __device__ uint4 packed(const float* from) {
    uint32_t pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] = narrow(from[2 * i]) | uint32_t(narrow(from[2 * i + 1])) << 16;
    return uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
  }
  // Four numbers of a line, those from 4 quad on.
  static __device__ void four(const unsigned char* line, int quad, float* to) {
    const uint2 x = reinterpret_cast<const uint2*>(line)[quad];
    to[0] = __uint_as_float(x.x << 16), to[1] = __uint_as_float(x.x & 0xffff0000);
    to[2] = __uint_as_float(x.y << 16), to[3] = __uint_as_float(x.y & 0xffff0000);
  }
  // Adds to rows g and g + 8 by column 2 t and 2 t + 1, for lane t of group g of four lanes, the
  // product of 32 numbers of a row and of a column: lane t holds those from 8 t on. Their order
  // within the sum is that of the registers, the same in rows and columns.
  static __device__ void multiply(float (&c)[4], uint4 low, uint4 high, uint4 w) {
    mma_bfloat16(c, low.x, high.x, low.y, high.y, w.x, w.y);
    mma_bfloat16(c, low.z, high.z, low.w, high.w, w.z, w.w);
  }
};

struct Float32 {
  using Type = float;
  static constexpr int kEach = 4;

  static __device__ float widen(Type x) { return x; }
  static __device__ Type narrow(float x) { return x; }

  static __device__ void unpack(uint4 x, float* to) {
    to[0] = __uint_as_float(x.x), to[1] = __uint_as_float(x.y);
    to[2] = __uint_as_float(x.z), to[3] = __uint_as_float(x.w);
  }
  static __device__ uint4 packed(const float* from) {
    return uint4{__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]),
                 __float_as_uint(from[3])};
  }
  static __device__ void four(const unsigned char* line, int quad, float* to) {
    unpack(reinterpret_cast<const uint4*>(line)[quad], to);
  }
  // As of Bfloat16, of 16 numbers. The tensor cores read 11 bits of a number: so these are three
  // products of its two halves, and the error is that of float32.
  static __device__ void multiply(float (&c)[4], uint4 low, uint4 high, uint4 w) {
    eight(c, low.x, high.x, low.y, high.y, w.x, w.y);
    eight(c, low.z, high.z, low.w, high.w, w.z, w.w);
  }

 private:
  static __device__ uint32_t top(uint32_t x) { return x & 0xffffe000; }
  static __device__ uint32_t rest(uint32_t x) {
    return __float_as_uint(__uint_as_float(x) - __uint_as_float(top(x)));
  }
  static __device__ void eight(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                               uint32_t b0, uint32_t b1) {
    mma_tf32(c, rest(a0), rest(a1), rest(a2), rest(a3), top(b0), top(b1));
    mma_tf32(c, top(a0), top(a1), top(a2), top(a3), rest(b0), rest(b1));
    mma_tf32(c, top(a0), top(a1), top(a2), top(a3), top(b0), top(b1));
  }
};

}  // namespace

#endif  // BYTELAX_GPU_H_
