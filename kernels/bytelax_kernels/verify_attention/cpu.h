// Attention of a few queries to a ring of positions, for one key head of one row.
//
// Each query sees positions in order, and everything that is summed over them is summed in this
// order, from the first position that the query sees. So the bits of a query do not depend on the
// other queries or on the size of the ring, and are the same in a tree as on a chain.

#ifndef BYTELAX_VERIFY_ATTENTION_CPU_H_
#define BYTELAX_VERIFY_ATTENTION_CPU_H_

#include <limits>
#include <vector>

#include "../native.h"

namespace {

constexpr int64_t kQueries = 16;  // that are scored together
// Products of numbers for which a thread of its own pays. The time goes into reading the cache.
constexpr int64_t kScoresOfAThread = 1 << 14;

// Returns how many threads pay for `queries` vectors of each row, which look at its latest positions.
inline int64_t threads_for(const int32_t* newest, int64_t batch, int64_t slots, int64_t queries,
                           int64_t dim) {
  int64_t products = 0;
  for (int64_t row = 0; row < batch; ++row) {
    products += std::min<int64_t>(newest[row] + 1, slots) * queries * dim;
  }
  return products / kScoresOfAThread;
}

// The cache of a key head. Position p is in slot p % slots; slots begin `stride` numbers
// apart, and `dim` numbers of each are of this head.
template <typename C>
struct Ring {
  const C* keys;
  const C* values;
  int64_t slots, dim, stride, newest;

  int64_t oldest() const { return std::max<int64_t>(0, newest - slots + 1); }
};

// What a query sees: positions first to last, and cells of the window that begins at `start`.
struct Seen {
  int64_t first, last, start, window;
  const bool* cells;  // or null
};

// The sums over the lanes of as many vectors as a vector has lanes.
inline Vector sums_of_lanes(Vector (&x)[kLanes]) {
  for (int left = kLanes; left > 1; left /= 2) {
    for (int i = 0; i < left / 2; ++i) {
      const Vector a = x[2 * i], b = x[2 * i + 1];
#if defined(__AVX512F__)
      const Integers even = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
#elif defined(__AVX2__)
      const Integers even = {0, 2, 4, 6, 8, 10, 12, 14};
#else
      const Integers even = {0, 2, 4, 6};
#endif
      x[i] = shuffled(a, b, even) + shuffled(a, b, even + 1);
    }
  }
  return x[0];
}

// The scores of a query at `count` positions from `position` on, at most `kLanes`; the others are
// arbitrary numbers.
template <typename C>
inline Vector scores(const float* query, const Ring<C>& ring, int64_t position, int64_t count) {
  const C* keys[kLanes];
  for (int64_t j = 0, slot = position % ring.slots; j < kLanes; ++j) {
    keys[j] = ring.keys + (j < count ? slot : 0) * ring.stride;
    if (++slot == ring.slots) slot = 0;
  }
  const int64_t left = ring.dim % kLanes, full = ring.dim - left;
  Vector products[kLanes];
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j) {
    Vector sum = {};
    for (int64_t d = 0; d < full; d += kLanes) sum += wide(query + d) * wide(keys[j] + d);
    if (left) sum += begin_of(query + full, left) * begin_of(keys[j] + full, left);
    products[j] = sum;
  }
  return sums_of_lanes(products);
}

// Replaces scores by e^(score - the largest), and returns their sum.
inline float exponentials(float* x, int64_t count) {
  Vector tops = Vector{} - std::numeric_limits<float>::infinity(), total = {};
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    const Vector held = wide(x + at);
    tops = held > tops ? held : tops;
  }
  float top = -std::numeric_limits<float>::infinity(), sum = 0;
  for (; at < count; ++at) top = std::max(top, x[at]);
  for (int lane = 0; lane < kLanes; ++lane) top = std::max(top, tops[lane]);
  by_vectors(count, [&](int64_t at, int most) {
    store_begin(exponential(begin_of(x + at, most) - top), x + at, most);
    total += begin_of(x + at, most);
  });
  for (int lane = 0; lane < kLanes; ++lane) sum += total[lane];
  return sum;
}

// Queries, and vectors of a value, whose sums stay in registers.
#if defined(__AVX512F__)
constexpr int kSums = 6, kWide = 4;
#else
constexpr int kSums = 4, kWide = 2;
#endif

// The sums of `V` vectors of the values, weighted by M rows of `weights` [M, stride], over `count`
// positions.
template <int M, int V, typename C>
inline void weighted(const float* weights, int64_t stride, const Ring<C>& ring, int64_t position,
                     int64_t count, int64_t d, Vector (&out)[M][V]) {
  Vector held[M][V] = {};
  const int64_t left = ring.dim - d - (V - 1) * kLanes;  // of the last vector
  for (int64_t i = 0, slot = position % ring.slots; i < count; ++i) {
    const C* value = ring.values + slot * ring.stride + d;
    Vector values[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const C* from = value + v * kLanes;
      values[v] = v + 1 < V || left >= kLanes ? wide(from) : begin_of(from, left);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) held[m][v] += weights[m * stride + i] * values[v];
    }
    if (++slot == ring.slots) slot = 0;
  }
  std::memcpy(out, held, sizeof(held));
}

// As `weighted`, of the numbers from `d` on, each sum divided by its total and written to `out`.
template <int M, int V, typename C>
void weighted_rows(const float* weights, int64_t stride, const float* totals, const Ring<C>& ring,
                   int64_t position, int64_t count, int64_t d, float* out) {
  if constexpr (V > 1) {
    if (ring.dim - d <= (V - 1) * kLanes) {
      return weighted_rows<M, V - 1>(weights, stride, totals, ring, position, count, d, out);
    }
  }
  Vector sums[M][V];
  weighted<M, V>(weights, stride, ring, position, count, d, sums);
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < V; ++v) {
      const int64_t at = d + v * kLanes, most = std::min<int64_t>(kLanes, ring.dim - at);
      const Vector sum = totals[m] == 0 ? Vector{} : sums[m][v] / totals[m];
      store_begin(sum, out + m * ring.dim + at, most);
    }
  }
}

// The weighted sums of the values of `rows` queries, M at a time.
template <int M, typename C>
void weighted_sums(const float* weights, int64_t stride, const float* totals, int64_t rows,
                   const Ring<C>& ring, int64_t position, int64_t count, float* out) {
  if constexpr (M > 0) {
    int64_t q = 0;
    for (; q + M <= rows; q += M) {
      for (int64_t d = 0; d < ring.dim; d += kWide * kLanes) {
        weighted_rows<M, kWide>(weights + q * stride, stride, totals + q, ring, position, count, d,
                                out + q * ring.dim);
      }
    }
    weighted_sums<M - 1>(weights + q * stride, stride, totals + q, rows - q, ring, position, count,
                         out + q * ring.dim);
  }
}

// Attends from up to `kQueries` queries [count, dim], which are scaled, and writes `out` [count, dim].
template <typename C>
void attend(const Ring<C>& ring, const float* queries, const Seen* seen, int64_t count,
            float* out) {
  const int64_t none = std::numeric_limits<int64_t>::max();
  int64_t lowest = none, highest = -1, first[kQueries], after[kQueries];
  for (int64_t q = 0; q < count; ++q) {
    first[q] = std::max(seen[q].first, ring.oldest());
    after[q] = std::min(seen[q].last, ring.newest) + 1;
    if (first[q] < after[q]) {
      lowest = std::min(lowest, first[q]), highest = std::max(highest, after[q] - 1);
    }
    if (seen[q].cells != nullptr) {
      for (int64_t cell = 0; cell < seen[q].window; ++cell) {
        const int64_t position = seen[q].start + cell;
        if (!seen[q].cells[cell] || position < ring.oldest()) continue;
        lowest = std::min(lowest, position), highest = std::max(highest, position);
      }
    }
  }
  if (highest < 0) return std::fill(out, out + count * ring.dim, 0.0f);

  thread_local std::vector<float> held;
  const int64_t range = highest - lowest + 1, stride = (range + kLanes - 1) / kLanes * kLanes;
  held.resize(kQueries * stride + kLanes);  // the last vector may end after its row
  float totals[kQueries];
  for (int64_t q = 0; q < count; ++q) {
    float* row = held.data() + q * stride;
    const bool tree = seen[q].cells != nullptr;
    const bool empty = first[q] >= after[q];
    const int64_t begin = tree || empty ? 0 : first[q] - lowest;
    const int64_t end = tree ? range : empty ? 0 : after[q] - lowest;
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t most = std::min<int64_t>(kLanes, end - i);
      store(scores(queries + q * ring.dim, ring, lowest + i, most), row + i);
    }
    if (!tree) {
      totals[q] = exponentials(row + begin, end - begin);
      std::fill(row, row + begin, 0.0f);
      std::fill(row + end, row + range, 0.0f);
      continue;
    }
    // The scores that it sees are moved together for the sum, as on a chain.
    const auto sees = [&](int64_t i) {
      const int64_t position = lowest + i, cell = position - seen[q].start;
      return (first[q] <= position && position < after[q]) ||
             (cell >= 0 && cell < seen[q].window && seen[q].cells[cell]);
    };
    int64_t past = 0;
    for (int64_t i = 0; i < range; ++i) {
      if (sees(i)) row[past++] = row[i];
    }
    totals[q] = exponentials(row, past);
    for (int64_t i = range - 1; i >= 0; --i) row[i] = sees(i) ? row[--past] : 0;
  }
  weighted_sums<kSums>(held.data(), stride, totals, count, ring, lowest, range, out);
}

}  // namespace

#endif  // BYTELAX_VERIFY_ATTENTION_CPU_H_
