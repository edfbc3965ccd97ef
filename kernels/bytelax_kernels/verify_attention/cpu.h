// Attention of a few queries to a ring of positions, for one key head of one row.
//
// Each query sees positions in order, and everything that is summed over them is summed in this
// order, from the first position that the query sees. So a query has the same bits beside any
// others, in a ring of any size, and as a node of a tree as on a chain.

#ifndef BYTELAX_VERIFY_ATTENTION_CPU_H_
#define BYTELAX_VERIFY_ATTENTION_CPU_H_

#include <limits>
#include <vector>

#include "../native.h"

namespace {

constexpr int64_t kQueries = 16;  // that are scored together
constexpr int64_t kSharedScores = 1 << 18;  // products of numbers from which on threads share

// The cache of a key head. Position p is in slot p % slots; a slot begins `stride` numbers behind the
// one before, of which `dim` are of this head.
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

// The scores of a query at up to `kLanes` positions from `position` on.
template <typename C>
inline Vector scores(const float* query, const Ring<C>& ring, int64_t position, int64_t count) {
  Vector products[kLanes] = {};
  for (int64_t j = 0, slot = position % ring.slots; j < count; ++j) {
    const C* key = ring.keys + slot * ring.stride;
    int64_t d = 0;
    for (; d + kLanes <= ring.dim; d += kLanes) products[j] += wide(query + d) * wide(key + d);
    if (const int64_t left = ring.dim - d) {
      products[j] += begin_of(query + d, left) * begin_of(key + d, left);
    }
    if (++slot == ring.slots) slot = 0;
  }
  return sums_of_lanes(products);
}

// Replaces scores by e^(score - the largest), and returns their sum.
inline float exponentials(float* x, int64_t count) {
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) top = std::max(top, x[i]);
  Vector total = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t most = std::min<int64_t>(kLanes, count - i);
    float held[kLanes] = {};
    std::memcpy(held, x + i, most * sizeof(float));
    Vector y = exponential(wide(held) - top);
    std::memcpy(held, &y, sizeof(y));
    std::memcpy(x + i, held, most * sizeof(float));
    if (most < kLanes) y = begin_of(held, most);
    total += y;
  }
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += total[lane];
  return sum;
}

// The sums of values, weighted by M rows of `weights` [M, stride], over `count` positions.
template <int M, typename C>
inline void weighted(const float* weights, int64_t stride, const Ring<C>& ring, int64_t position,
                     int64_t count, int64_t d, Vector (&out)[M][2]) {
  Vector held[M][2] = {};
  const int64_t left = ring.dim - d;
  for (int64_t i = 0, slot = position % ring.slots; i < count; ++i) {
    const C* value = ring.values + slot * ring.stride + d;
    const Vector low = left >= kLanes ? wide(value) : begin_of(value, left);
    const Vector high = left >= 2 * kLanes ? wide(value + kLanes)
                        : left > kLanes    ? begin_of(value + kLanes, left - kLanes)
                                           : Vector{};
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      held[m][0] += weights[m * stride + i] * low;
      held[m][1] += weights[m * stride + i] * high;
    }
    if (++slot == ring.slots) slot = 0;
  }
  std::memcpy(out, held, sizeof(held));
}

template <int M, typename C>
void weighted_rows(const float* weights, int64_t stride, const float* totals, const Ring<C>& ring,
                   int64_t position, int64_t count, float* out) {
  for (int64_t d = 0; d < ring.dim; d += 2 * kLanes) {
    Vector sums[M][2];
    weighted<M>(weights, stride, ring, position, count, d, sums);
    const int64_t most = std::min<int64_t>(2 * kLanes, ring.dim - d);
    for (int m = 0; m < M; ++m) {
      const float total = totals[m];
      for (Vector& sum : sums[m]) sum = total == 0 ? Vector{} : sum / total;
      std::memcpy(out + m * ring.dim + d, sums[m], most * sizeof(float));
    }
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
  held.resize(kQueries * stride);
  float totals[kQueries];
  for (int64_t q = 0; q < count; ++q) {
    float* row = held.data() + q * stride;
    const bool tree = seen[q].cells != nullptr;
    const bool empty = first[q] >= after[q];
    const int64_t begin = tree || empty ? 0 : first[q] - lowest;
    const int64_t end = tree ? range : empty ? 0 : after[q] - lowest;
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t most = std::min<int64_t>(kLanes, end - i);
      const Vector found = scores(queries + q * ring.dim, ring, lowest + i, most);
      std::memcpy(row + i, &found, most * sizeof(float));
    }
    if (!tree) {
      totals[q] = exponentials(row + begin, end - begin);
      std::fill(row, row + begin, 0.0f);
      std::fill(row + end, row + range, 0.0f);
      continue;
    }
    // What it sees lies side by side for the sum, as on a chain.
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
  constexpr int kAtOnce = 4;
  int64_t q = 0;
  for (; q + kAtOnce <= count; q += kAtOnce) {
    weighted_rows<kAtOnce>(held.data() + q * stride, stride, totals + q, ring, lowest, range,
                           out + q * ring.dim);
  }
  for (; q < count; ++q) {
    weighted_rows<1>(held.data() + q * stride, stride, totals + q, ring, lowest, range,
                     out + q * ring.dim);
  }
}

}  // namespace

#endif  // BYTELAX_VERIFY_ATTENTION_CPU_H_
