// What the kernels for processors share: vectors, numbers stored narrow, and work for threads.
//
// It is compiled into each of them, once for each instruction set, with its name as ISA.

#ifndef BYTELAX_NATIVE_H_
#define BYTELAX_NATIVE_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "xla/ffi/api/ffi.h"

#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)

// The version of the interface to XLA that the library is compiled for.
extern "C" __attribute__((weak)) const int bytelax_interface = XLA_FFI_API_MINOR;
extern "C" __attribute__((weak)) const char* const bytelax_sources = SOURCES;

namespace ffi = xla::ffi;

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef int32_t Integers __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Unsigned __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

struct BFloat16 {
  uint16_t bits;
};

template <typename To, typename From>
inline To load(const From* from) {
  To value;
  std::memcpy(&value, from, sizeof(To));
  return value;
}

// Compilers widen vectors of these sizes one element at a time, or by several steps.
#if defined(__AVX512F__)
inline Integers integers(Halves x) { return Integers(_mm512_cvtepu16_epi32(__m256i(x))); }
inline Integers integers(Bytes x) { return Integers(_mm512_cvtepi8_epi32(__m128i(x))); }
#elif defined(__AVX2__)
inline Integers integers(Halves x) { return Integers(_mm256_cvtepu16_epi32(__m128i(x))); }
inline Integers integers(Bytes x) {
  return Integers(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(load<int64_t>(&x))));
}
#else
template <typename Narrow>
inline Integers integers(Narrow x) {
  return __builtin_convertvector(x, Integers);
}
#endif

// Picks lanes of `a` and `b`; those of `b` are numbered after those of `a`.
inline Vector shuffled(Vector a, Vector b, Integers lanes) {
#if defined(__clang__)
  Vector out;
  for (int i = 0; i < kLanes; ++i) out[i] = lanes[i] < kLanes ? a[lanes[i]] : b[lanes[i] - kLanes];
  return out;
#else
  return __builtin_shuffle(a, b, lanes);
#endif
}

inline Vector wide(const float* from) { return load<Vector>(from); }

inline Vector wide(const BFloat16* from) {
  const Integers bits = integers(load<Halves>(from)) << 16;
  return load<Vector>(&bits);
}

inline Vector wide(const int8_t* from) {
  return __builtin_convertvector(integers(load<Bytes>(from)), Vector);
}

inline float wide_one(float x) { return x; }

inline float wide_one(BFloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  return load<float>(&bits);
}

inline void store(Vector x, float* to) { std::memcpy(to, &x, sizeof(x)); }

// The upper halves, rounded to the nearest, to even in a tie; NaN stays one.
inline Integers bfloat16_bits(Vector x) {
  const Integers bits = load<Integers>(&x);
  const Integers upper = (bits >> 16) & 0xffff;
  const Integers nearest = ((bits + 0x7fff + (upper & 1)) >> 16) & 0xffff;
  return x == x ? nearest : upper | 64;
}

inline void store(Vector x, BFloat16* to) {
  const Halves bits = __builtin_convertvector(bfloat16_bits(x), Halves);
  std::memcpy(to, &bits, sizeof(bits));
}

// Rounds to the numbers of a narrower type.
inline Vector rounded(Vector x, float) { return x; }

inline Vector rounded(Vector x, BFloat16) {
  const Integers bits = bfloat16_bits(x) << 16;
  return load<Vector>(&bits);
}

// Calls `work(at, most)` for parts of at most a vector of `count` numbers.
template <typename Work>
inline void by_vectors(int64_t count, const Work& work) {
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) work(at, kLanes);
  if (at < count) work(at, static_cast<int>(count - at));
}

// The first `count` numbers of a vector, and zeros.
template <typename C>
inline Vector begin_of(const C* from, int64_t count) {
  if (count == kLanes) return wide(from);
  C held[kLanes] = {};
  std::memcpy(held, from, count * sizeof(C));
  return wide(held);
}

// Writes the first `count` numbers of a vector.
template <typename C>
inline void store_begin(Vector x, C* to, int64_t count) {
  if (count == kLanes) return store(x, to);
  C held[kLanes];
  store(x, held);
  std::memcpy(to, held, count * sizeof(C));
}

// e^x to the last bits of a float: 2^n times a polynomial in the rest of x.
inline Vector exponential(Vector x) {
  const Vector least = Vector{} - 87.0f, most = Vector{} + 88.0f;
  x = x < least ? least : x;
  x = x > most ? most : x;
  const Vector shift = Vector{} + 12582912.0f;  // rounds to an integer
  const Vector n = (x * 1.44269504f + shift) - shift;
  const Vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector p = Vector{} + 1.9875691500e-4f;
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                        5.0000001201e-1f}) {
    p = p * r + c;
  }
  p = p * (r * r) + r + 1.0f;
  const Integers power = (__builtin_convertvector(n, Integers) + 127) << 23;
  return p * load<Vector>(&power);
}

// Hints to the processor that this thread waits for another one.
inline void pause() {
#if defined(__AVX2__)
  _mm_pause();
#endif
}

// Runs `work(begin, end)` for all of 0 to `count`, on `most` threads at most, in parts of multiples of
// `unit`. The calling thread takes part, so that it never waits for a thread that has not begun.
// Fails if two threads have done the same part.
template <typename Work>
ffi::Error share(ffi::ThreadPool& threads, int64_t most, int64_t count, int64_t unit, const Work& work) {
  const int64_t helpers = std::min({most, threads.num_threads(), (count + unit - 1) / unit}) - 1;
  if (helpers <= 0) {
    work(0, count);
    return ffi::Error::Success();
  }
  struct Progress {
    std::atomic<int64_t> next{0}, done{0};
  };
  auto progress = std::make_shared<Progress>();
  const int64_t parts = 8 * (helpers + 1) * unit;
  const int64_t step = std::max<int64_t>(1, count / parts) * unit;
  // A helper that begins after all is done finds nothing left, and does not touch `work`.
  auto some = [progress, &work, count, step] {
    for (int64_t at; (at = progress->next.fetch_add(step)) < count;) {
      const int64_t end = std::min(count, at + step);
      work(at, end);
      progress->done.fetch_add(end - at, std::memory_order_release);
    }
  };
  for (int64_t helper = 0; helper < helpers; ++helper) threads.Schedule(decltype(some)(some));
  some();
  int64_t done;
  for (int64_t waits = 0; (done = progress->done.load(std::memory_order_acquire)) < count; ++waits) {
    waits < 1000 ? pause() : std::this_thread::yield();
  }
  if (done > count) return ffi::Error::Internal("two threads have done the same part");
  return ffi::Error::Success();
}

}  // namespace

#endif  // BYTELAX_NATIVE_H_
