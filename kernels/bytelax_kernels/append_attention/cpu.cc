// `append_attention` for processors: rotary positions, the writing of the cache, and the attention.

#include "../verify_attention/cpu.h"

namespace {

// The sine and the cosine of phases in radians, to the last bits of a float.
inline void turned(Vector x, Vector& sine, Vector& cosine) {
  const Vector shift = Vector{} + 12582912.0f;  // rounds to an integer
  const Vector n = (x * 0.636619772f + shift) - shift;
  Vector r = x - n * 1.57079625f;  // a quarter turn in three parts, each exact in one rounding
  r = r - n * 7.54978942e-8f;
  r = r - n * 5.39030253e-15f;
  const Vector square = r * r;
  Vector s = Vector{} - 1.9515295891e-4f;
  s = s * square + 8.3321608736e-3f;
  s = s * square - 1.6666654611e-1f;
  s = s * square * r + r;
  Vector c = Vector{} + 2.443315711809948e-5f;
  c = c * square - 1.388731625493765e-3f;
  c = c * square + 4.166664568298827e-2f;
  c = c * square * square - 0.5f * square + 1.0f;
  const Integers quarter = __builtin_convertvector(n, Integers);
  const auto odd = (quarter & 1) != 0;
  sine = odd ? c : s;
  cosine = odd ? s : c;
  sine = (quarter & 2) != 0 ? -sine : sine;
  cosine = ((quarter + 1) & 2) != 0 ? -cosine : cosine;
}

// Each of two neighbours in place of the other.
inline Vector swapped(Vector x) {
  Integers lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = i ^ 1;
  return shuffled(x, x, lanes);
}

// Rotates the pairs of a head, rounded as `from`: `phases` holds the cosine of each number's pair,
// then the sine, negative for the first of the two.
template <typename X>
inline void rotate(const X* from, const float* phases, int64_t dim, float* to) {
  by_vectors(dim, [&](int64_t d, int most) {
    const Vector x = begin_of(from + d, most), cosine = begin_of(phases + d, most);
    const Vector turned = x * cosine + swapped(x) * begin_of(phases + dim + d, most);
    store_begin(rounded(turned, X{}), to + d, most);
  });
}

struct Arrays {
  const void* qkv;
  const int32_t* turns;
  const float* frequency;
  const int32_t* positions;
  const int32_t* first;
  const int32_t* last;
  const int32_t* newest;
  const bool* cells;
  void *out, *keys, *values;
  int64_t batch, window, kv_heads, group, slots, dim;
};

template <typename X, typename C>
ffi::Error run(ffi::ThreadPool& threads, const Arrays& a) {
  const int64_t pairs = a.dim / 2, rows = a.group * a.window;
  thread_local std::vector<float> phases_of_all;
  phases_of_all.resize(a.batch * a.window * 2 * a.dim);
  float* phases = phases_of_all.data();
  for (int64_t w = 0; w < a.batch * a.window; ++w) {
    float* own = phases + w * 2 * a.dim;
    by_vectors(pairs, [&](int64_t pair, int most) {
      Vector sine, cosine;
      turned(static_cast<float>(a.turns[w]) * begin_of(a.frequency + pair, most), sine, cosine);
      for (int i = 0; i < most; ++i) {
        const int64_t d = 2 * (pair + i);
        own[d] = own[d + 1] = cosine[i];
        own[a.dim + d] = -sine[i], own[a.dim + d + 1] = sine[i];
      }
    });
  }
  const float scale = 1 / std::sqrt(static_cast<float>(a.dim));
  const auto head = [=, &a](int64_t at) {
    const int64_t row = at / a.kv_heads, own = at % a.kv_heads, parts = a.group + 2;
    C* keys = static_cast<C*>(a.keys) + at * a.slots * a.dim;
    C* values = static_cast<C*>(a.values) + at * a.slots * a.dim;
    thread_local std::vector<float> held;
    held.resize((2 * kQueries + 1) * a.dim);
    float *queries = held.data(), *attended = queries + kQueries * a.dim;
    float* turned = attended + kQueries * a.dim;
    const auto part = [&](int64_t w, int64_t index) {
      const X* qkv = static_cast<const X*>(a.qkv);
      return qkv + (((row * a.window + w) * a.kv_heads + own) * parts + index) * a.dim;
    };
    for (int64_t w = 0; w < a.window; ++w) {
      const int64_t position = a.positions[row * a.window + w];
      if (position < 0) continue;
      const int64_t place = position % a.slots * a.dim;
      rotate(part(w, a.group), phases + (row * a.window + w) * 2 * a.dim, a.dim, turned);
      const X* value = part(w, a.group + 1);
      by_vectors(a.dim, [&](int64_t d, int most) {
        store_begin(begin_of(turned + d, most), keys + place + d, most);
        store_begin(begin_of(value + d, most), values + place + d, most);
      });
    }
    const Ring<C> ring{keys, values, a.slots, a.dim, a.dim, a.newest[row]};
    for (int64_t begin = 0; begin < rows; begin += kQueries) {
      const int64_t count = std::min(kQueries, rows - begin);
      Seen seen[kQueries];
      for (int64_t q = 0; q < count; ++q) {
        const int64_t w = (begin + q) % a.window, all = row * a.window + w;
        seen[q] = {a.first[all], a.last[all], a.newest[row] - a.window + 1, a.window,
                   a.cells == nullptr ? nullptr : a.cells + all * a.window};
        float* query = queries + q * a.dim;
        rotate(part(w, (begin + q) / a.window), phases + all * 2 * a.dim, a.dim, query);
        for (int64_t d = 0; d < a.dim; ++d) query[d] *= scale;
      }
      attend(ring, queries, seen, count, attended);
      for (int64_t q = 0; q < count; ++q) {
        const int64_t w = (begin + q) % a.window, g = (begin + q) / a.window;
        const int64_t heads = a.kv_heads * a.group;
        X* to = static_cast<X*>(a.out) +
                ((row * a.window + w) * heads + own * a.group + g) * a.dim;
        by_vectors(a.dim, [&](int64_t d, int most) {
          store_begin(begin_of(attended + q * a.dim + d, most), to + d, most);
        });
      }
    }
  };
  const int64_t most = threads_for(a.newest, a.batch, a.slots, a.kv_heads * rows, a.dim);
  return share(threads, most, a.batch * a.kv_heads, 1,
        [&](int64_t at, int64_t end) {
          for (; at < end; ++at) head(at);
        });
}

ffi::Error append_attention(ffi::ThreadPool threads, ffi::AnyBuffer qkv,
                            ffi::Buffer<ffi::S32> turns, ffi::Buffer<ffi::F32> frequency,
                            ffi::AnyBuffer keys, ffi::AnyBuffer values,
                            ffi::Buffer<ffi::S32> positions, ffi::Buffer<ffi::S32> first,
                            ffi::Buffer<ffi::S32> last, ffi::Buffer<ffi::S32> newest,
                            ffi::Buffer<ffi::PRED> cells, ffi::Result<ffi::AnyBuffer> out,
                            ffi::Result<ffi::AnyBuffer> keys_out,
                            ffi::Result<ffi::AnyBuffer> values_out) {
  if (keys.untyped_data() != keys_out->untyped_data() ||
      values.untyped_data() != values_out->untyped_data()) {
    return ffi::Error::Internal("the cache is written in place");
  }
  const auto sizes = qkv.dimensions();
  const Arrays arrays{
      qkv.untyped_data(),     turns.typed_data(),
      frequency.typed_data(), positions.typed_data(),
      first.typed_data(),     last.typed_data(),
      newest.typed_data(),    cells.element_count() ? cells.typed_data() : nullptr,
      out->untyped_data(),    keys_out->untyped_data(),
      values_out->untyped_data(), sizes[0],
      sizes[1],               sizes[2],
      sizes[3] - 2,           keys.dimensions()[2],
      sizes[4],
  };
  const bool narrow = keys.element_type() == ffi::BF16;
  if (qkv.element_type() == ffi::BF16) {
    return narrow ? run<BFloat16, BFloat16>(threads, arrays) : run<BFloat16, float>(threads, arrays);
  }
  return narrow ? run<float, BFloat16>(threads, arrays) : run<float, float>(threads, arrays);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(JOINED(bytelax_append_attention_, ISA), append_attention,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()          // projections
                                  .Arg<ffi::Buffer<ffi::S32>>()   // turns
                                  .Arg<ffi::Buffer<ffi::F32>>()   // frequency
                                  .Arg<ffi::AnyBuffer>()          // keys
                                  .Arg<ffi::AnyBuffer>()          // values
                                  .Arg<ffi::Buffer<ffi::S32>>()   // positions
                                  .Arg<ffi::Buffer<ffi::S32>>()   // first
                                  .Arg<ffi::Buffer<ffi::S32>>()   // last
                                  .Arg<ffi::Buffer<ffi::S32>>()   // newest
                                  .Arg<ffi::Buffer<ffi::PRED>>()  // ancestors
                                  .Ret<ffi::AnyBuffer>()          // attended
                                  .Ret<ffi::AnyBuffer>()          // keys
                                  .Ret<ffi::AnyBuffer>());        // values
