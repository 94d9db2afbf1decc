// Small messages: packets that have their flag in them (NCCL's LL), so that nobody waits for a barrier. A rank writes
// into its peers' mailboxes and polls its own.
//
//	half of a mailbox:   of rank 0 │ of rank 1 │ … │ of the last │ (two shots: results, likewise)
//
// A thread sends and receives packets of the same positions, so that results may overwrite the data.

#include "element.h"
#include "operation.h"

// Slots are where packets lie in a mailbox: one rank's after another's.
struct Slots {
  u64 at, stride;

  GENERIC u64 of(u32 rank, u64 packet) const { return at + rank * stride + packet * carillon_packet; }
};

// packets_of is the number of packets for some bytes: at least one, since every rank must hear from every other one.
DEVICE u64 packets_of(u64 bytes) {
  return bytes <= carillon_payload ? 1 : (bytes + carillon_payload - 1) / carillon_payload;
}

DEVICE void send(u64 at, u64 data, u32 flag) { store_packet(at, {(u32)data, flag, (u32)(data >> 32), flag}); }

// take waits for a packet of every other rank. Data is by rank; this rank's own is set already.
DEVICE bool take(const Grid &g, const carillon_args &a, Operation &op, Slots slots, u64 packet, u32 phase,
                 u64 (&data)[carillon_max_ranks]) {
  u32 missing = op.others;
  return wait(g, a, op, phase, [&](Missing &m) {
    Packet got[carillon_max_ranks];
    UNROLL
    for (u32 r = 0; r < carillon_max_ranks; r++)
      if (missing >> r & 1) got[r] = load_packet(a.window[0] + slots.of(r, packet));
    UNROLL
    for (u32 r = 0; r < carillon_max_ranks; r++) {
      if (!(missing >> r & 1)) continue;
      if (got[r].flag_low == op.flag && got[r].flag_high == op.flag) {
        missing &= ~(1u << r);
        data[r] = got[r].low | (u64)got[r].high << 32;
      } else {
        m = {r, op.flag, got[r].flag_low, got[r].flag_high};
      }
    }
    return missing == 0;
  });
}

// put and shift are for arrays that stay in registers: only constants may index them. Put sets the entry of one rank,
// and clears the others.
DEVICE void put(u64 (&data)[carillon_max_ranks], u32 rank, u64 value) {
  UNROLL
  for (u32 r = 0; r < carillon_max_ranks; r++) data[r] = r == rank ? value : 0;
}

DEVICE void shift(u64 (&data)[carillon_max_ranks]) {
  UNROLL
  for (u32 r = 1; r < carillon_max_ranks; r++) data[r - 1] = data[r];
}

// copies gives each rank what others send to it: all-gather, all-to-all, broadcast, gather, scatter, barrier. The
// number of ranks is a constant where it is 2, 4 or 8, as in one_shot.
template <u32 ranks> DEVICE void copies(const Grid &g, const carillon_args &a) {
  Operation op = begin_packets(g, a, counts_of(g, a), ranks ? ranks : a.ranks);
  const u64 packets = packets_of(a.bytes), first = g.block * g.threads + g.thread, step = (u64)g.blocks * g.threads;
  const Slots slots = {op.half, packets * carillon_packet};
  for (u64 i = first; i < packets; i += step) {
    const u64 at = i * carillon_payload, rest = a.bytes - at;
    UNROLL
    for (u32 k = 1; k < carillon_max_ranks; k++) {
      if (k >= op.ranks) continue;
      const u32 r = behind(a, op, k);
      const u64 data = a.send_to >> r & 1 ? load(a.send + r * a.send_stride + at, rest) : 0;
      send(a.window[k] + slots.of(a.rank, i), data, op.flag);
    }
  }
  for (u64 i = first; i < packets; i += step) {
    const u64 at = i * carillon_payload, rest = a.bytes - at;
    u64 data[carillon_max_ranks];
    put(data, a.rank, a.send_to >> a.rank & 1 ? load(a.send + a.rank * a.send_stride + at, rest) : 0);
    if (!take(g, a, op, slots, i, carillon_data, data)) break;
    UNROLL
    for (u32 r = 0; r < carillon_max_ranks; r++)
      if (r < op.ranks && a.recv_from >> r & 1) store(a.recv + r * a.recv_stride + at, rest, data[r]);
  }
  end(g, a, op);
}

// contribution is what this rank gives to a reduction.
template <class T> DEVICE u64 contribution(const carillon_args &a, u64 at, u64 bytes) {
  const u64 data = load(at, bytes);
  return UNLIKELY(a.reduction == carillon_premul_sum) ? scaled<T>(data, a.factor) : data;
}

// Contributions are those of all ranks, to be passed by value.
struct Contributions {
  u64 of[carillon_max_ranks];
};

// reduced_otherwise is for all reductions but the sum. It isn't inlined, since a kernel takes as long to fetch its
// instructions as to run them.
template <class T> RARE u64 reduced_otherwise(u32 reduction, u32 ranks, Contributions data) {
  typedef Elements<T, carillon_payload> E;
  E result = E::of({data.of[0]});
  LOOP
  for (u32 r = 1; r < ranks; r++) result.combine_with(reduction, E::of({data.of[r]}));
  if (reduction == carillon_avg) result.divide_by(ranks);
  u64 packet[1];
  result.put(packet);
  return packet[0];
}

// reduced combines the data of all ranks, in rank order.
template <class T> DEVICE u64 reduced(const carillon_args &a, const Operation &op, u64 (&data)[carillon_max_ranks]) {
  if (UNLIKELY(a.reduction != carillon_sum)) {
    Contributions all;
    UNROLL
    for (u32 r = 0; r < carillon_max_ranks; r++) all.of[r] = data[r];
    return reduced_otherwise<T>(a.reduction, op.ranks, all);
  }
  typedef Elements<T, carillon_payload> E;
  E sum = E::of({data[0]});
  LOOP
  for (u32 r = 1; r < op.ranks; r++) {
    shift(data);
    sum.add_to(E::of({data[0]}));
  }
  u64 packet[1];
  sum.put(packet);
  return packet[0];
}

// one_shot sends to each rank what that one reduces: all-reduce, reduce, reduce-scatter.
//
// The number of ranks is a constant where it is 2, 4 or 8: that saves 0.5 of 2.5 microseconds for two ranks, 0.3 for
// four.
template <class T, u32 ranks> DEVICE void one_shot(const Grid &g, const carillon_args &a) {
  const u64 packets = packets_of(a.bytes), step = (u64)g.blocks * g.threads;
  auto part = [&](u64 i, u32 r) {
    const u64 at = i * carillon_payload;
    return contribution<T>(a, a.send + r * a.send_stride + at, a.bytes - at);
  };
  u64 i = g.block * g.threads + g.thread;
  const carillon_counts before = counts_of(g, a);
  u64 own = i < packets ? part(i, a.rank) : 0;
  Operation op = begin_packets(g, a, before, ranks ? ranks : a.ranks);
  const Slots slots = {op.half, packets * carillon_packet};
  for (u64 j = i; j < packets; j += step) {
    if (a.send_stride != 0) {
      UNROLL
      for (u32 k = 1; k < carillon_max_ranks; k++)
        if (k < op.ranks) send(a.window[k] + slots.of(a.rank, j), part(j, behind(a, op, k)), op.flag);
    } else {
      const u64 data = j == i ? own : part(j, a.rank);
      UNROLL
      for (u32 k = 1; k < carillon_max_ranks; k++)
        if (k < op.ranks) send(a.window[k] + slots.of(a.rank, j), data, op.flag);
    }
  }
  while (i < packets) {
    u64 data[carillon_max_ranks];
    put(data, a.rank, own);
    if (!take(g, a, op, slots, i, carillon_data, data)) break;
    if (a.recv_from) store(a.recv + i * carillon_payload, a.bytes - i * carillon_payload, reduced<T>(a, op, data));
    i += step;
    if (i < packets) own = part(i, a.rank);
  }
  end(g, a, op);
}

// two_shot is all-reduce: each rank reduces its share and sends the result to all. A share is a number of whole
// packets.
template <class T> DEVICE void two_shot(const Grid &g, const carillon_args &a) {
  Operation op = begin_packets(g, a, counts_of(g, a), a.ranks);
  const u64 packets = (packets_of(a.bytes) + op.ranks - 1) / op.ranks, share = packets * carillon_payload;
  const u64 first = g.block * g.threads + g.thread, step = (u64)g.blocks * g.threads;
  const Slots parts = {op.half, packets * carillon_packet};
  const Slots results = {parts.at + op.ranks * parts.stride, parts.stride};
  for (u64 i = first; i < packets; i += step) {
    LOOP
    for (u32 k = 1; k < op.ranks; k++) {
      const u64 at = behind(a, op, k) * share + i * carillon_payload;
      send(of(a.window, k) + parts.of(a.rank, i), at < a.bytes ? contribution<T>(a, a.send + at, a.bytes - at) : 0,
           op.flag);
    }
  }
  for (u64 i = first; i < packets; i += step) {
    const u64 at = a.rank * share + i * carillon_payload;
    u64 data[carillon_max_ranks];
    put(data, a.rank, at < a.bytes ? contribution<T>(a, a.send + at, a.bytes - at) : 0);
    if (!take(g, a, op, parts, i, carillon_data, data)) break;
    const u64 result = reduced<T>(a, op, data);
    UNROLL
    for (u32 k = 1; k < carillon_max_ranks; k++)
      if (k < op.ranks) send(a.window[k] + results.of(a.rank, i), result, op.flag);
    if (at < a.bytes) store(a.recv + at, a.bytes - at, result);
  }
  for (u64 i = first; i < packets && !op.left; i += step) {
    u64 data[carillon_max_ranks];
    if (!take(g, a, op, results, i, carillon_results, data)) break;
    LOOP
    for (u32 r = 0; r < op.ranks; r++, shift(data)) {
      const u64 at = r * share + i * carillon_payload;
      if (r != a.rank && at < a.bytes) store(a.recv + at, a.bytes - at, data[0]);
    }
  }
  end(g, a, op);
}

#define PACKETS(type, T)                                                                                               \
  KERNEL(carillon_one_shot_##type) { one_shot<T, 0>(g, a); }                                                           \
  KERNEL(carillon_one_shot_##type##_2) { one_shot<T, 2>(g, a); }                                                       \
  KERNEL(carillon_one_shot_##type##_4) { one_shot<T, 4>(g, a); }                                                       \
  KERNEL(carillon_one_shot_##type##_8) { one_shot<T, 8>(g, a); }                                                       \
  KERNEL(carillon_two_shot_##type) { two_shot<T>(g, a); }

EACH_TYPE(PACKETS)

KERNEL(carillon_copy) { copies<0>(g, a); }
KERNEL(carillon_copy_2) { copies<2>(g, a); }
KERNEL(carillon_copy_4) { copies<4>(g, a); }
KERNEL(carillon_copy_8) { copies<8>(g, a); }
