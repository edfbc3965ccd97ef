// `verify_attention` for processors.

#include "cpu.h"

namespace {

template <typename X, typename C>
ffi::Error run(ffi::ThreadPool& threads, const ffi::AnyBuffer& queries, const ffi::AnyBuffer& keys,
               const ffi::AnyBuffer& values, const int32_t* first, const int32_t* last,
               const int32_t* newest, const bool* cells, void* result) {
  const auto sizes = queries.dimensions(), cache = keys.dimensions();
  const int64_t batch = sizes[0], window = sizes[1], heads = sizes[2], dim = sizes[3];
  const bool lines = cache.size() == 3;  // [batch, slots, kv_heads * dim], and not by head
  const int64_t kv_heads = lines ? cache[2] / dim : cache[1], slots = lines ? cache[1] : cache[2];
  const int64_t group = heads / kv_heads, stride = lines ? cache[2] : dim;
  const int64_t rows = group * window, blocks = (rows + kQueries - 1) / kQueries;
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  const X* given = static_cast<const X*>(queries.untyped_data());
  X* out = static_cast<X*>(result);
  const auto block = [=, &keys, &values](int64_t at) {
    const int64_t row = at / (kv_heads * blocks), head = at / blocks % kv_heads;
    const int64_t begin = at % blocks * kQueries, count = std::min(kQueries, rows - begin);
    const int64_t cached = row * kv_heads * slots * dim + head * (lines ? dim : slots * dim);
    const Ring<C> ring{static_cast<const C*>(keys.untyped_data()) + cached,
                       static_cast<const C*>(values.untyped_data()) + cached, slots, dim,
                       stride, newest[row]};
    thread_local std::vector<float> held;
    held.resize(2 * kQueries * dim);
    Seen seen[kQueries];
    const auto place = [&](int64_t q) {  // of a query among all
      const int64_t w = (begin + q) % window, own = head * group + (begin + q) / window;
      return ((row * window + w) * heads + own) * dim;
    };
    for (int64_t q = 0; q < count; ++q) {
      const int64_t w = row * window + (begin + q) % window;
      seen[q] = {first[w], last[w], newest[row] - window + 1, window,
                 cells == nullptr ? nullptr : cells + w * window};
      const X* from = given + place(q);
      for (int64_t d = 0; d < dim; ++d) held[q * dim + d] = wide_one(from[d]) * scale;
    }
    float* attended = held.data() + kQueries * dim;
    attend(ring, held.data(), seen, count, attended);
    for (int64_t q = 0; q < count; ++q) {
      by_vectors(dim, [&](int64_t d, int most) {
        store_begin(begin_of(attended + q * dim + d, most), out + place(q) + d, most);
      });
    }
  };
  const int64_t most = threads_for(newest, batch, slots, heads * window, dim);
  return share(threads, most, batch * kv_heads * blocks, 1,
        [&](int64_t at, int64_t end) {
          for (; at < end; ++at) block(at);
        });
}

ffi::Error verify_attention(ffi::ThreadPool threads, ffi::AnyBuffer queries, ffi::AnyBuffer keys,
                            ffi::AnyBuffer values, ffi::Buffer<ffi::S32> first,
                            ffi::Buffer<ffi::S32> last, ffi::Buffer<ffi::S32> newest,
                            ffi::Buffer<ffi::PRED> cells, ffi::Result<ffi::AnyBuffer> out) {
  const auto with = [&](auto x, auto c) {
    return run<decltype(x), decltype(c)>(
        threads, queries, keys, values, first.typed_data(), last.typed_data(), newest.typed_data(),
        cells.element_count() ? cells.typed_data() : nullptr, out->untyped_data());
  };
  const bool narrow = keys.element_type() == ffi::BF16;
  if (queries.element_type() == ffi::BF16) {
    return narrow ? with(BFloat16{}, BFloat16{}) : with(BFloat16{}, float{});
  }
  return narrow ? with(float{}, BFloat16{}) : with(float{}, float{});
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(JOINED(bytelax_verify_attention_, ISA), verify_attention,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()          // queries
                                  .Arg<ffi::AnyBuffer>()          // keys
                                  .Arg<ffi::AnyBuffer>()          // values
                                  .Arg<ffi::Buffer<ffi::S32>>()   // first
                                  .Arg<ffi::Buffer<ffi::S32>>()   // last
                                  .Arg<ffi::Buffer<ffi::S32>>()   // newest
                                  .Arg<ffi::Buffer<ffi::PRED>>()  // ancestors
                                  .Ret<ffi::AnyBuffer>());
