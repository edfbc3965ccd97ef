// CUDA on a processor, for the kernels of `bytelax_kernels/gpu.h`: it shows wrong indices, what is
// read before it is written, and missing barriers. It shows nothing of speed.
//
// Every CUDA thread is a fiber that runs until it waits for others. Which goes on then can be chosen:
// without a barrier that is needed, a warp that runs ahead of the others changes the result. Shared
// memory begins as NaN. Asynchronous copies arrive when they are waited for, no earlier, and bring
// what was there then, or what was there when they were asked for, or either.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "xla/ffi/api/ffi.h"

#define BYTELAX_EMULATED
#define __device__
#define __host__
#define __global__
#define __launch_bounds__(...)
#define SHARED_MEMORY(name) unsigned char* name = emulated::current->block->memory.data()
#define threadIdx (emulated::current->thread)
#define blockIdx (emulated::current->block->index)
#define gridDim (emulated::current->block->grid)

struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) float4 { float x, y, z, w; };

namespace emulated {

struct Index { int x; };
struct Barrier {
  int needed, arrived = 0, passed = 0;
};
struct Warp {
  Barrier together{32};
  uint32_t held[32][6];
};
struct Cluster;
struct Block {
  Block(int index, int grid, int threads, int bytes, Cluster* cluster)
      : index{index}, grid{grid}, running(threads), together{threads}, warps(threads / 32),
        memory(bytes, 0xff), cluster(cluster) {}
  Index index, grid;
  int running;  // threads
  Barrier together;
  std::vector<Warp> warps;
  std::vector<unsigned char> memory;  // NaN: what is read must have been written
  Cluster* cluster;
};
struct Cluster {
  Barrier together;
  std::vector<std::unique_ptr<Block>> blocks;
};
struct Copy {
  uint4* to;
  const uint4* from;
  uint4 early;
};
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Index thread;
  Block* block;
  Barrier* waits = nullptr;
  int until = 0;
  bool done = false;
  std::vector<std::vector<Copy>> copies{1};
};

inline Fiber* current;
inline ucontext_t scheduler;
inline std::function<void()>* entered;
// 0: in turn; 1: always the first that can go on; 2: always the last; 3: any.
inline int order = 0;
inline std::minstd_rand chance;
inline const char* error = nullptr;  // of the GPU, which then runs nothing

inline void wait(Barrier& barrier) {
  if (++barrier.arrived == barrier.needed) {
    barrier.arrived = 0, ++barrier.passed;
    return;
  }
  current->waits = &barrier, current->until = barrier.passed + 1;
  swapcontext(&current->context, &scheduler);
}

inline void run_fiber() {
  (*entered)();
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

inline void run(std::function<void()> kernel, int blocks, int threads, int bytes, int cluster) {
  constexpr int kStack = 64 << 10;
  static std::mutex one_at_a_time;  // XLA may run two calls at once
  std::lock_guard lock(one_at_a_time);
  entered = &kernel;
  for (int from = 0; from < blocks; from += cluster) {
    Cluster shared{{cluster * threads}, {}};
    for (int b = 0; b < cluster; ++b)
      shared.blocks.push_back(std::make_unique<Block>(from + b, blocks, threads, bytes, &shared));
    std::vector<Fiber> fibers(cluster * threads);
    std::vector<Fiber*> left;
    for (int t = 0; t < cluster * threads; ++t) {
      Fiber& f = fibers[t];
      f.thread = {t % threads}, f.block = shared.blocks[t / threads].get();
      f.stack.reset(new char[kStack]);
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.get(), f.context.uc_stack.ss_size = kStack;
      makecontext(&f.context, run_fiber, 0);
      left.push_back(&f);
    }
    if (order == 2) std::reverse(left.begin(), left.end());
    while (!left.empty()) {
      bool any = false, ended = false;
      const size_t first = order == 3 ? chance() % left.size() : 0;
      for (size_t i = 0; i < left.size(); ++i) {
        Fiber* f = left[(first + i) % left.size()];
        if (f->waits && f->waits->passed < f->until) continue;
        f->waits = nullptr, any = true, current = f;
        swapcontext(&scheduler, &f->context);
        if (f->done) {
          ended = true;
          auto& memory = f->block->memory;  // another block's by now, once all threads have ended
          if (!--f->block->running) std::fill(memory.begin(), memory.end(), 0xff);
        }
        if (order) break;
      }
      if (!any) std::puts("threads wait for one another for ever"), std::abort();
      if (!ended) continue;
      left.erase(std::remove_if(left.begin(), left.end(), [](Fiber* f) { return f->done; }),
                 left.end());
    }
  }
}

inline Warp& warp() { return current->block->warps[current->thread.x / 32]; }
// What the lanes of a warp hold, while `read` runs in each.
template <int kCount, class Read>
auto exchanged(const uint32_t (&mine)[kCount], Read read) {
  Warp& w = warp();
  std::memcpy(w.held[current->thread.x % 32], mine, sizeof mine);
  wait(w.together);
  auto got = read(w.held);
  wait(w.together);
  return got;
}

struct Stream {};
struct StreamOfXla {};

}  // namespace emulated

using Stream = emulated::Stream;
using StreamOfXla = emulated::StreamOfXla;

template <>
struct xla::ffi::CtxDecoding<StreamOfXla> {
  using Type = Stream;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    xla::ffi::DiagnosticEngine&) {
    return Stream{};
  }
};

inline void __syncthreads() { emulated::wait(emulated::current->block->together); }
inline float __uint_as_float(uint32_t x) { float f; return std::memcpy(&f, &x, 4), f; }
inline uint32_t __float_as_uint(float f) { uint32_t x; return std::memcpy(&x, &f, 4), x; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

inline uint16_t rounded(float x) {
  const uint32_t b = __float_as_uint(x);
  return uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
inline void copy_async(uint4* to, const uint4* from) {
  emulated::current->copies.back().push_back({to, from, *from});
}
inline void end_of_copies() { emulated::current->copies.emplace_back(); }
template <int kLater>
inline void wait_for_copies() {
  // In any order others may go on meanwhile, and write what is being copied.
  if (emulated::order == 3) swapcontext(&emulated::current->context, &emulated::scheduler);
  auto& groups = emulated::current->copies;
  while (groups.size() > kLater + 1) {
    for (const auto& copy : groups.front()) {
      const bool early = emulated::order == 3 ? emulated::chance() & 1 : emulated::order;
      *copy.to = early ? copy.early : *copy.from;
    }
    groups.erase(groups.begin());
  }
}
inline void cluster_barrier() { emulated::wait(emulated::current->block->cluster->together); }
inline float* in_block(float* mine, int other) {
  auto* own = emulated::current->block;
  const auto at = reinterpret_cast<unsigned char*>(mine) - own->memory.data();
  return reinterpret_cast<float*>(own->cluster->blocks[other]->memory.data() + at);
}
inline float shuffle_xor(float x, int other) {
  const uint32_t mine[] = {__float_as_uint(x)};
  const int lane = threadIdx.x % 32;
  return emulated::exchanged(
      mine, [&](auto& held) { return __uint_as_float(held[lane ^ other][0]); });
}

// Adds to c the product of depth kDepth, where a(held, row, k) and b(held, k, column) are numbers.
template <int kDepth, class A, class B>
inline void multiplied(float (&c)[4], const uint32_t (&mine)[6], A a, B b) {
  const int lane = threadIdx.x % 32;
  emulated::exchanged(mine, [&](auto& held) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < kDepth; ++k) c[i] = c[i] + a(held, row, k) * b(held, k, column);
    }
    return 0;
  });
}
// m16n8k16 as the PTX manual lays out its fragments.
inline void mma_bfloat16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                         uint32_t b0, uint32_t b1) {
  auto half = [](uint32_t pair, int high) {
    return __uint_as_float(high ? pair & 0xffff0000 : pair << 16);
  };
  multiplied<16>(
      c, {a0, a1, a2, a3, b0, b1},
      [&](auto& held, int row, int k) {
        return half(held[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)], k % 2);
      },
      [&](auto& held, int k, int column) {
        return half(held[column * 4 + k % 8 / 2][4 + k / 8], k % 2);
      });
}
// m16n8k8 of numbers of which it reads 11 bits.
inline void mma_tf32(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                     uint32_t b0, uint32_t b1) {
  auto cut = [](uint32_t x) { return __uint_as_float(x & 0xffffe000); };
  multiplied<8>(
      c, {a0, a1, a2, a3, b0, b1},
      [&](auto& held, int row, int k) {
        return cut(held[row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)]);
      },
      [&](auto& held, int k, int column) { return cut(held[column * 4 + k % 4][4 + k / 4]); });
}

struct Device {
  const char* error = emulated::error;
  int multiprocessors = 3, shared = 227 << 10;
};

template <class Arguments>
xla::ffi::Error launch(Stream, void (*kernel)(Arguments), const Arguments& arguments, int blocks,
                       int threads, int shared, int cluster) {
  if (shared > Device().shared)
    return xla::ffi::Error::InvalidArgument("more shared memory than there is");
  emulated::run([&] { kernel(arguments); }, blocks, threads, shared, cluster);
  return xla::ffi::Error::Success();
}

extern "C" __attribute__((weak)) void emulate_in_order(int order) { emulated::order = order; }
extern "C" __attribute__((weak)) void emulate_error(const char* error) { emulated::error = error; }
