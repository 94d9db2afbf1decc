// Moving data: copies and reductions by the threads of a block, once the data is there and its destination is known.
#pragma once

#include "element.h"
#include "operation.h"

// Task is a block's work in one step: copies, each from a source to a target, or a reduction of all sources, which are
// in rank order, to all targets.
struct Task {
  u32 there, left; // there: there is a task; left: there is none, since the block has given up
  u32 signature;
  u32 sources, targets;
  bool whole; // for a reduction: see direct.h; so is offset
  u64 offset;
  u64 bytes[carillon_max_ranks]; // of each copy; for a reduction, the first
  u64 from[carillon_max_ranks], to[carillon_max_ranks];

  GENERIC void copy(u64 target, u64 source, u64 n) {
    to[targets] = target, from[targets] = source, bytes[targets] = n;
    targets++;
  }
};

// Workers are the threads that do tasks.
struct Workers {
  u32 thread, threads;
};

DEVICE bool aligned(u64 at) { return at % sizeof(Vector) == 0; }

// Some holds up to n vectors of a thread, at a stride. Vectors beyond the end are left out.
template <u32 n> struct Some {
  u64 first, end; // in bytes
  u32 stride;
  Vector v[n];

  GENERIC bool has(u32 j) const { return first + j * stride < end; }

  GENERIC void load(u64 from) {
    UNROLL
    for (u32 j = 0; j < n; j++)
      if (has(j)) v[j] = load_vector(from + first + j * stride);
  }

  GENERIC void store(u64 to) const {
    UNROLL
    for (u32 j = 0; j < n; j++)
      if (has(j)) store_vector(to + first + j * stride, v[j]);
  }
};

// copy must be called by all workers.
RARE void copy(Workers w, u64 to, u64 from, u64 bytes) {
  constexpr u32 n = 8; // vectors at a time
  u64 end = 0;
  if (aligned(to | from)) {
    const u32 stride = w.threads * (u32)sizeof(Vector);
    end = bytes / sizeof(Vector) * sizeof(Vector);
    LOOP
    for (u64 at = w.thread * sizeof(Vector); at < end; at += n * stride) {
      Some<n> some = {at, end, stride, {}};
      some.load(from);
      some.store(to);
    }
  }
  LOOP
  for (u64 at = end + w.thread * 8; at < bytes; at += w.threads * 8)
    store(to + at, bytes - at, load(from + at, bytes - at));
}

// copy_all makes several copies concurrently, each by a part of the workers.
DEVICE void copy_all(const Workers &w, const Task &t) {
  const u32 warps = w.threads / warp, groups = t.targets < warps ? t.targets : warps;
  const u32 each = warps / groups * warp, group = w.thread / each;
  LOOP
  for (u32 i = group; group < groups && i < t.targets; i += groups)
    copy({w.thread % each, each}, t.to[i], t.from[i], t.bytes[i]);
}

// scale_all copies this rank's contribution times its factor. It must be called by all workers of a block.
template <class T> RARE void scale_all(Workers w, const carillon_args &a, const Task &t) {
  LOOP
  for (u32 i = 0; i < t.targets; i++) {
    const u64 bytes = t.bytes[i];
    LOOP
    for (u64 at = w.thread * 8; at < bytes; at += w.threads * 8)
      store(t.to[i] + at, bytes - at, scaled<T>(load(t.from[i] + at, bytes - at), a.factor));
  }
}

// sum_vectors adds the vectors of all ranks, in rank order, and loads the next rank's vectors meanwhile.
template <class T, u32 n> DEVICE void sum_vectors(const Task &t, u64 first, u64 end, u32 stride) {
  typedef Elements<T, sizeof(Vector)> E;
  E sum[n];
  Some<n> now = {first, end, stride, {}}, next = now;
  now.load(t.from[0]);
  LOOP
  for (u32 r = 0; r < t.sources; r++, now = next) {
    if (r + 1 < t.sources) next.load(t.from[r + 1]);
    UNROLL
    for (u32 j = 0; j < n; j++) {
      const E x = E::of({now.v[j].low, now.v[j].high});
      if (r == 0)
        sum[j] = x;
      else
        sum[j].add_to(x);
    }
  }
  UNROLL
  for (u32 j = 0; j < n; j++) {
    u64 data[2];
    sum[j].put(data);
    now.v[j] = {data[0], data[1]};
  }
  LOOP
  for (u32 i = 0; i < t.targets; i++) now.store(t.to[i]);
}

// sum_pair adds the vectors of two ranks.
template <class T, u32 n> DEVICE void sum_pair(const Task &t, Some<n> &sum) {
  typedef Elements<T, sizeof(Vector)> E;
  Some<n> other = sum;
  sum.load(t.from[0]);
  other.load(t.from[1]);
  UNROLL
  for (u32 j = 0; j < n; j++) {
    E x = E::of({sum.v[j].low, sum.v[j].high});
    x.add_to(E::of({other.v[j].low, other.v[j].high}));
    u64 data[2];
    x.put(data);
    sum.v[j] = {data[0], data[1]};
  }
}

// reduce_bytes does any reduction, at any alignment. It isn't inlined, to keep the code for the sum small. The other
// ranks have already applied their factors.
template <class T> RARE void reduce_bytes(Workers w, const carillon_args &a, const Task &t, u64 begin) {
  const u64 bytes = t.bytes[0];
  LOOP
  for (u64 at = begin + w.thread * 8; at < bytes; at += w.threads * 8) {
    Elements<T, 8> result;
    LOOP
    for (u32 r = 0; r < t.sources; r++) {
      u64 data = load(t.from[r] + at, bytes - at);
      if (a.reduction == carillon_premul_sum && r == a.rank) data = scaled<T>(data, a.factor);
      const auto x = Elements<T, 8>::of({data});
      if (r == 0)
        result = x;
      else
        result.combine_with(a.reduction, x);
    }
    if (a.reduction == carillon_avg) result.divide_by(t.sources);
    u64 data[1];
    result.put(data);
    LOOP
    for (u32 i = 0; i < t.targets; i++) store(t.to[i] + at, bytes - at, data[0]);
  }
}

template <class T> DEVICE void reduce_all(const Workers &w, const carillon_args &a, const Task &t) {
  u64 any = 0;
  LOOP
  for (u32 r = 0; r < t.sources; r++) any |= t.from[r] | (r < t.targets ? t.to[r] : 0);
  u64 end = 0;
  if (aligned(any) && a.reduction == carillon_sum) {
    constexpr u32 n = Elements<T, sizeof(Vector)>::n <= 4 ? 4 : 2;
    const u32 stride = w.threads * sizeof(Vector);
    end = t.bytes[0] / sizeof(Vector) * sizeof(Vector);
    LOOP
    for (u64 at = w.thread * sizeof(Vector); at < end; at += n * stride) sum_vectors<T, n>(t, at, end, stride);
  }
  if (end < t.bytes[0]) reduce_bytes<T>(w, a, t, end);
}
