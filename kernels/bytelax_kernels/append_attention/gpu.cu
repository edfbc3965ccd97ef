// Rotary positions, writing the cache, and attention of a window, in one kernel.
//
// A cluster of eight thread blocks has a key head of a row: block p has every eighth piece of eight
// slots. It writes what the window puts there, attends to its slots, and at the end reads the sums
// of the others in their shared memory. So 16 heads keep 128 multiprocessors busy at one row.
//
// Order of sums: by slot alone. Which warp and lane adds a slot follows from its number, warps and
// blocks are added in order, and what no query sees adds zeros. So the bits of a query depend on
// nothing but the query and what it sees.
//
// Products are scalar: of 9 queries and 66 slots a block they are few.

#include "../gpu.h"

namespace {

constexpr int kParts = 8, kSlots = 8, kTile = 128;  // blocks of a head; slots of a piece, of a tile
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr float kFloor = -1e30f;

struct Append {
  const void* qkv;              // [B, W, K, G + 2, D]
  const int *entries, *newest;  // [B, 5, W]: first, last, cells, slot, turns; [B]
  const float* frequency;       // [D / 2]
  void *out, *keys, *values;    // [B, W, K G, D], [B, K, S, D] twice
  int batch, window, heads, group, slots, dim;
};

// Where each part of shared memory begins, in bytes; `gpu.py` counts them too.
struct Layout {
  int line, values, queries, weights, sums, parts, stats, shares, window, bytes;
};
template <class Number>
__host__ __device__ Layout layout_of(const Append& a) {
  const int size = sizeof(typename Number::Type), rows = a.group * a.window;
  const int pieces = (a.slots + kSlots - 1) / kSlots;
  const int most = (pieces + kParts - 1) / kParts * kSlots, tile = most < kTile ? most : kTile;
  Layout l;
  l.line = a.dim * size + 16;  // of a slot: no two lanes share a bank
  l.values = tile * l.line;    // after the keys
  l.queries = l.values + tile * l.line;
  l.weights = l.queries + rows * a.dim * 4;
  l.sums = l.weights + rows * kTile * 4;
  l.parts = l.sums + kWarps * rows * a.dim * 4;
  l.stats = l.parts + rows * a.dim * 4;     // top, total, factor of the last tile, all; of a query
  l.shares = l.stats + 4 * rows * 4;        // of each part, for each query
  l.window = l.shares + kParts * rows * 4;  // first, last, cells, slot, turns; of an entry
  l.bytes = l.window + 5 * a.window * 4;
  return l;
}

// kOwn: queries of a lane that there is room for, when values are added.
template <class Number, int kOwn>
__global__ void __launch_bounds__(kThreads, kOwn > 16 ? 1 : 2) append(Append a) {
  using Type = typename Number::Type;
  constexpr int kEach = Number::kEach;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int part = blockIdx.x % kParts, head = blockIdx.x / kParts % a.heads;
  const int row = blockIdx.x / kParts / a.heads, rows = a.group * a.window, dim = a.dim;
  const Layout l = layout_of<Number>(a);
  SHARED_MEMORY(memory);
  float* queries = reinterpret_cast<float*>(memory + l.queries);
  float* weights = reinterpret_cast<float*>(memory + l.weights);
  float* sums = reinterpret_cast<float*>(memory + l.sums);
  float* parts = reinterpret_cast<float*>(memory + l.parts);
  float* top = reinterpret_cast<float*>(memory + l.stats);
  float *total = top + rows, *factor = total + rows, *all = factor + rows;
  float* shares = reinterpret_cast<float*>(memory + l.shares);
  int* first = reinterpret_cast<int*>(memory + l.window);
  int *last = first + a.window, *cells = last + a.window;
  int *slot_of = cells + a.window, *turns = slot_of + a.window;

  const int newest = a.newest[row], lap = newest - newest % a.slots;
  for (int i = thread; i < 5 * a.window; i += kThreads) first[i] = a.entries[row * 5 * a.window + i];
  for (int i = thread; i < rows; i += kThreads) top[i] = kFloor, total[i] = 0;
  __syncthreads();

  const int64_t cache = (int64_t(row) * a.heads + head) * a.slots * dim;
  Type *keys = static_cast<Type*>(a.keys) + cache, *values = static_cast<Type*>(a.values) + cache;
  auto given = [&](int entry, int which) {
    const int64_t at = ((int64_t(row) * a.window + entry) * a.heads + head) * (a.group + 2) + which;
    return static_cast<const Type*>(a.qkv) + at * dim;
  };
  auto rotated = [&](const Type* x, int entry, int pair, Type& even, Type& odd) {
    const float phase = float(turns[entry]) * a.frequency[pair];
    const float c = cosf(phase), s = sinf(phase);
    const float p = Number::widen(x[2 * pair]), q = Number::widen(x[2 * pair + 1]);
    even = Number::narrow(p * c - q * s), odd = Number::narrow(q * c + p * s);
  };

  // Positions in reach of any query; slots after the newest are empty until the ring has wrapped.
  int lowest = newest - a.window + 1;
  for (int e = 0; e < a.window; ++e) lowest = first[e] < lowest ? first[e] : lowest;
  const bool wrapped = newest >= a.slots;
  auto in_reach = [&](int slot) {
    return slot < a.slots && (wrapped || (slot >= lowest && slot <= newest));
  };
  // The block's slot number i.
  auto slot_at = [&](int i) { return (i / kSlots * kParts + part) * kSlots + i % kSlots; };
  const int pieces = (a.slots + kSlots - 1) / kSlots;
  const int mine = (pieces - part + kParts - 1) / kParts * kSlots;
  auto skipped = [&](int begin, int tile) {
    return !wrapped && (slot_at(begin) > newest || slot_at(begin + tile - 1) < lowest);
  };

  float c[kOwn][4] = {};  // of queries `across`, across + apart, ... and four numbers of a head
  const int quads = dim / 4, apart = 32 / quads, across = lane / quads, quad = lane % quads;

  bool prepared = false;
  for (int begin = 0; begin < mine; begin += kTile) {
    const int tile = mine - begin < kTile ? mine - begin : kTile;
    if (skipped(begin, tile)) continue;

    const int units = dim / kEach;
    for (int i = thread; i < tile * units; i += kThreads) {
      const int slot = slot_at(begin + i / units), at = i / units * l.line + i % units * 16;
      uint4* key = reinterpret_cast<uint4*>(memory + at);
      uint4* value = reinterpret_cast<uint4*>(memory + l.values + at);
      if (in_reach(slot)) {
        const int64_t from = int64_t(slot) * dim;
        copy_async(key, reinterpret_cast<const uint4*>(keys + from) + i % units);
        copy_async(value, reinterpret_cast<const uint4*>(values + from) + i % units);
      } else {
        *key = *value = uint4{0, 0, 0, 0};
      }
    }
    end_of_copies();
    if (!prepared) {  // while they are on their way
      for (int i = thread; i < rows * dim / 2; i += kThreads) {
        const int place = i / (dim / 2), pair = i % (dim / 2), entry = place % a.window;
        Type x[2];
        rotated(given(entry, place / a.window), entry, pair, x[0], x[1]);
        for (int n = 0; n < 2; ++n) queries[place * dim + 2 * pair + n] = Number::widen(x[n]);
      }
      prepared = true;
    }
    wait_for_copies<0>();
    __syncthreads();
    // The window takes its slots, here and in the cache.
    for (int i = thread; i < a.window * dim / 2; i += kThreads) {
      const int entry = i / (dim / 2), pair = i % (dim / 2), slot = slot_of[entry];
      const int piece = slot / kSlots, at = piece / kParts * kSlots + slot % kSlots - begin;
      if (slot >= a.slots || piece % kParts != part || at < 0 || at >= tile) continue;
      Type key[2];
      rotated(given(entry, a.group), entry, pair, key[0], key[1]);
      for (int n = 0; n < 2; ++n) {
        const int d = 2 * pair + n;
        const Type value = given(entry, a.group + 1)[d];
        keys[int64_t(slot) * dim + d] = key[n], values[int64_t(slot) * dim + d] = value;
        reinterpret_cast<Type*>(memory + at * l.line)[d] = key[n];
        reinterpret_cast<Type*>(memory + l.values + at * l.line)[d] = value;
      }
    }
    __syncthreads();

    {  // Scores: a thread has a slot, and four of eight queries.
      const int i = thread % kTile, slot = i < tile ? slot_at(begin + i) : a.slots;
      const bool here = in_reach(slot);
      const int position = slot + (slot <= newest - lap ? lap : lap - a.slots);
      const int cell = position - (newest - a.window + 1);
      const bool inside = cell >= 0 && cell < a.window && position >= 0;
      const float scale = rsqrtf(float(dim));
      for (int query = thread / kTile * 4; query < rows; query += 8) {
        float s[4] = {};
        for (int unit = 0; here && unit < units; ++unit) {
          float key[kEach];
          Number::unpack(*reinterpret_cast<const uint4*>(memory + i * l.line + unit * 16), key);
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int at = (query + n < rows ? query + n : query) * dim + unit * kEach;
#pragma unroll
            for (int d = 0; d < kEach; d += 4) {
              const float4 q = *reinterpret_cast<const float4*>(queries + at + d);
              s[n] = s[n] + q.x * key[d];
              s[n] = s[n] + q.y * key[d + 1];
              s[n] = s[n] + q.z * key[d + 2];
              s[n] = s[n] + q.w * key[d + 3];
            }
          }
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          if (query + n >= rows) continue;
          const int entry = (query + n) % a.window;
          bool seen = position >= first[entry] && position <= last[entry];
          seen |= inside && (cells[entry] >> (cell & 31) & 1);
          weights[(query + n) * kTile + i] = seen && here ? s[n] * scale : -INFINITY;
        }
      }
    }
    __syncthreads();
    for (int query = warp; query < rows; query += kWarps) {
      float s[kTile / 32], highest = top[query], sum = 0;
#pragma unroll
      for (int n = 0; n < kTile / 32; ++n) {
        s[n] = weights[query * kTile + 32 * n + lane];
        highest = fmaxf(highest, s[n]);
      }
      for (int other = 16; other; other /= 2)
        highest = fmaxf(highest, shuffle_xor(highest, other));
#pragma unroll
      for (int n = 0; n < kTile / 32; ++n) {
        const float w = expf(s[n] - highest);
        weights[query * kTile + 32 * n + lane] = w, sum = sum + w;
      }
      for (int other = 16; other; other /= 2) sum = sum + shuffle_xor(sum, other);
      if (lane == 0) {
        factor[query] = expf(top[query] - highest);
        total[query] = total[query] * factor[query] + sum, top[query] = highest;
      }
    }
    __syncthreads();
    // Values: a warp has every eighth slot of the tile.
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const int query = across + n * apart;
      if (query < rows)
        for (int j = 0; j < 4; ++j) c[n][j] *= factor[query];
    }
    for (int i = warp; i < tile; i += kWarps) {
      float value[4];
      Number::four(memory + l.values + i * l.line, quad, value);
#pragma unroll
      for (int n = 0; n < kOwn; ++n) {
        const int query = across + n * apart;
        if (query < rows) {
          const float w = weights[query * kTile + i];
          for (int j = 0; j < 4; ++j) c[n][j] = c[n][j] + w * value[j];
        }
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    const int query = across + n * apart;
    if (query < rows)
      for (int j = 0; j < 4; ++j) sums[(warp * rows + query) * dim + 4 * quad + j] = c[n][j];
  }
  __syncthreads();
  for (int i = thread; i < rows * dim; i += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum = sum + sums[w * rows * dim + i];
    parts[i] = sum;
  }
  cluster_barrier();
  // What each part counts for, then an eighth of the results.
  for (int query = thread; query < rows; query += kThreads) {
    float tops[kParts], highest = kFloor, sum = 0;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      tops[p] = *in_block(top + query, p);
      highest = fmaxf(highest, tops[p]);
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const float share = expf(tops[p] - highest);
      shares[query * kParts + p] = share, sum = sum + share * *in_block(total + query, p);
    }
    all[query] = sum > 0 ? sum : 1;
  }
  __syncthreads();
  const int every = (rows * quads + kParts - 1) / kParts, end = (part + 1) * every;
  for (int i = part * every + thread; i < end && i < rows * quads; i += kThreads) {
    const int query = i / quads, entry = query % a.window, of = query / a.window;
    float sum[4] = {};
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const float4 x = *reinterpret_cast<const float4*>(in_block(parts + 4 * i, p));
      const float share = shares[query * kParts + p];
      sum[0] = sum[0] + share * x.x, sum[1] = sum[1] + share * x.y;
      sum[2] = sum[2] + share * x.z, sum[3] = sum[3] + share * x.w;
    }
    const int64_t at = (int64_t(row) * a.window + entry) * a.heads * a.group + head * a.group + of;
    Type* to = static_cast<Type*>(a.out) + at * dim + i % quads * 4;
    for (int j = 0; j < 4; ++j) to[j] = Number::narrow(sum[j] / all[query]);
  }
  cluster_barrier();  // the others read this block's memory until here
}

template <class Number>
ffi::Error launched(Stream stream, const Append& a) {
  const int rows = a.group * a.window, apart = 128 / a.dim, own = (rows + apart - 1) / apart;
  auto kernel = own <= 1    ? append<Number, 1>
                : own <= 4  ? append<Number, 4>
                : own <= 8  ? append<Number, 8>
                : own <= 16 ? append<Number, 16>
                            : append<Number, 32>;
  const int blocks = a.batch * a.heads * kParts;
  return launch(stream, kernel, a, blocks, kThreads, layout_of<Number>(a).bytes, kParts);
}

ffi::Error attend(Stream stream, ffi::AnyBuffer qkv, ffi::Buffer<ffi::S32> entries,
                  ffi::Buffer<ffi::F32> frequency, ffi::Buffer<ffi::S32> newest, ffi::AnyBuffer,
                  ffi::AnyBuffer, ffi::Result<ffi::AnyBuffer> out, ffi::Result<ffi::AnyBuffer> keys,
                  ffi::Result<ffi::AnyBuffer> values) {
  const auto shape = qkv.dimensions();
  const Append a{qkv.untyped_data(),
                 entries.typed_data(),
                 newest.typed_data(),
                 frequency.typed_data(),
                 out->untyped_data(),
                 keys->untyped_data(),
                 values->untyped_data(),
                 int(shape[0]),
                 int(shape[1]),
                 int(shape[2]),
                 int(shape[3]) - 2,
                 int(keys->dimensions()[2]),
                 int(shape[4])};
  const bool narrow = qkv.element_type() == ffi::DataType::BF16;
  return narrow ? launched<Bfloat16>(stream, a) : launched<Float32>(stream, a);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(bytelax_append_attention_gpu, attend,
                              ffi::Ffi::Bind()
                                  .Ctx<StreamOfXla>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>(),
                              {ffi::Traits::kCmdBufferCompatible});
