// Collectives of much data: ranks read and write each other's buffers, between two barriers.

#include "element.h"
#include "operation.h"

// meet waits until every rank's block of this number is here, and is false if this one gives up. Behind it is seen what
// the others wrote before.
DEVICE bool meet(const Grid &g, const carillon_args &a, Operation &op, u32 barrier) {
  const u64 flags = op.half + (barrier * carillon_max_blocks + g.block) * carillon_max_ranks * 4;
  g.sync();
  if (g.thread == 0) {
    fence();
    UNROLL
    for (u32 k = 1; k < carillon_max_ranks; k++)
      if (k < op.ranks) store_flag(a.mailbox[k] + flags + a.rank * 4, op.flag);
    u32 missing = op.others;
    wait(g, a, op, carillon_entry + barrier, [&](u32 &peer) {
      u32 seen = op.flag;
      UNROLL
      for (u32 r = 0; r < carillon_max_ranks; r++) {
        if (!(missing >> r & 1)) continue;
        const u32 flag = load_flag(a.mailbox[0] + flags + r * 4);
        if (flag == op.flag)
          missing &= ~(1u << r);
        else
          seen = flag, peer = r;
      }
      return seen;
    });
    fence();
  }
  return !g.any(op.left);
}

DEVICE bool aligned(u64 at) { return at % sizeof(Vector) == 0; }

// gather gives this rank what each one has for it, by reading from their buffers: the counterpart of carillon_copy.
KERNEL(carillon_gather) {
  Operation op = enter(g, a, last_epoch(g, a), a.ranks);
  if (meet(g, a, op, 0)) {
    const u64 first = g.block * g.threads + g.thread, step = (u64)g.blocks * g.threads;
    LOOP
    for (u32 k = 0; k < op.ranks; k++) {
      const u32 r = behind(a, op, k);
      const u64 from = of(a.in, r) + a.rank * a.send_stride, to = of(a.out, a.rank) + r * a.recv_stride;
      if (!(a.recv_from >> r & 1) || from == to) continue;
      u64 vectors = 0;
      if (aligned(from) && aligned(to)) {
        constexpr int n = 8;
        vectors = a.bytes / sizeof(Vector);
        for (u64 i = first; i < vectors; i += n * step) {
          Vector v[n];
          UNROLL
          for (int j = 0; j < n; j++)
            if (i + j * step < vectors) v[j] = load_vector(from + (i + j * step) * sizeof(Vector));
          UNROLL
          for (int j = 0; j < n; j++)
            if (i + j * step < vectors) store_vector(to + (i + j * step) * sizeof(Vector), v[j]);
        }
      }
      for (u64 at = vectors * sizeof(Vector) + first * 8; at < a.bytes; at += step * 8)
        store(to + at, a.bytes - at, load(from + at, a.bytes - at));
    }
    meet(g, a, op, 1);
  }
  leave(g, a, op);
}

// reduce_at reduces n vectors (or parts of 8 bytes) that are a step apart, all ranks' in their order, and gives the
// results to whoever gets them.
template <class T, int Bytes, int n, class Load, class Store>
DEVICE void reduce_at(const carillon_args &a, const Operation &op, u64 at, u64 step, u64 end, Load &&get, Store &&put) {
  Elements<T, Bytes> sum[n];
  LOOP
  for (u32 r = 0; r < op.ranks; r++) {
    const u64 from = of(a.in, r) + a.rank * a.send_stride + at;
    u64 data[n][Bytes / 8];
    UNROLL
    for (int j = 0; j < n; j++)
      if (at + j * step < end) get(from + j * step, data[j]);
    UNROLL
    for (int j = 0; j < n; j++) {
      auto x = Elements<T, Bytes>::of(data[j]);
      if (r == 0)
        sum[j] = x;
      else
        sum[j].combine_with(a.reduction, x);
    }
  }
  u64 data[n][Bytes / 8];
  UNROLL
  for (int j = 0; j < n; j++) sum[j].finish(data[j], a.reduction, op.ranks);
  LOOP
  for (u32 k = 0; k < op.ranks; k++) {
    const u32 r = behind(a, op, k);
    if (!(a.send_to >> r & 1)) continue;
    const u64 to = of(a.out, r) + a.rank * a.recv_stride + at;
    UNROLL
    for (int j = 0; j < n; j++)
      if (at + j * step < end) put(to + j * step, data[j]);
  }
}

// reduce_share: each rank reduces its share of all ranks' buffers (a.bytes, which need not be the same on all) and
// writes it to those that get it: all-reduce, reduce, reduce-scatter.
template <class T> DEVICE void reduce_share(const Grid &g, const carillon_args &a) {
  Operation op = enter(g, a, last_epoch(g, a), a.ranks);
  if (meet(g, a, op, 0)) {
    const u64 first = g.block * g.threads + g.thread, step = (u64)g.blocks * g.threads;
    u64 any = 0, vectors = 0;
    UNROLL
    for (u32 r = 0; r < carillon_max_ranks; r++)
      if (r < op.ranks) any |= (a.in[r] + a.rank * a.send_stride) | (a.out[r] + a.rank * a.recv_stride);
    if (aligned(any)) {
      constexpr int n = Elements<T, sizeof(Vector)>::n <= 4 ? 4 : 2;
      auto get = [](u64 from, u64(&data)[2]) {
        Vector v = load_vector(from);
        data[0] = v.low, data[1] = v.high;
      };
      auto put = [](u64 to, const u64(&data)[2]) { store_vector(to, {data[0], data[1]}); };
      vectors = a.bytes / sizeof(Vector);
      for (u64 i = first; i < vectors; i += n * step)
        reduce_at<T, sizeof(Vector), n>(a, op, i * sizeof(Vector), step * sizeof(Vector), vectors * sizeof(Vector), get,
                                        put);
    }
    for (u64 at = vectors * sizeof(Vector) + first * 8; at < a.bytes; at += step * 8) {
      const u64 rest = a.bytes - at;
      reduce_at<T, 8, 1>(
          a, op, at, 0, a.bytes, [&](u64 from, u64(&data)[1]) { data[0] = load(from, rest); },
          [&](u64 to, const u64(&data)[1]) { store(to, rest, data[0]); });
    }
    meet(g, a, op, 1);
  }
  leave(g, a, op);
}

#define DIRECT(type, T)                                                                                                \
  KERNEL(carillon_reduce_##type) { reduce_share<T>(g, a); }

EACH_TYPE(DIRECT)
