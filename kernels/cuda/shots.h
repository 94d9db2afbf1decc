// Collectives whose data comes with its flags, so that no rank waits for a barrier. A rank writes into its peers'
// mailboxes and polls its own.
//
//	half of a mailbox:   of rank 0 │ of rank 1 │ … │ of the last │ (two shots: results, likewise)
//
// A format is the layout of data and flags there: packets.cu has NCCL's LL, lines.cu its LL128. A unit is the least
// that can be received. The threads of a unit, which are neighbors in a warp, send and receive it together, and each
// has a piece of its data. A thread sends and receives the same pieces, so results may overwrite the data.
#pragma once

#include "element.h"
#include "operation.h"

template <u32 words> struct Piece {
  u64 w[words];
};

template <class F> using Data = Piece<F::words>;

// units_of is the number of units for some bytes: at least one, since every rank must hear from every other one.
template <class F> DEVICE u64 units_of(u64 bytes) {
  return bytes <= F::payload ? 1 : (bytes + F::payload - 1) / F::payload;
}

// rest_of returns how many bytes of a buffer there are from a piece on; bytes is the size of the buffer.
template <class F> DEVICE u64 rest_of(u64 piece, u64 bytes) {
  const u64 at = F::offset_of(piece);
  return F::has_data(piece) && at < bytes ? bytes - at : 0;
}

// load_some and store_some are for pieces of several words that are incomplete or not aligned to a vector. They access
// no byte beyond rest.
template <class F> RARE Data<F> load_some(u64 at, u64 rest) {
  Data<F> d = {};
  LOOP
  for (u32 i = 0; i < F::words && i * 8 < rest; i++) d.w[i] = load(at + i * 8, rest - i * 8);
  return d;
}

template <class F> RARE void store_some(u64 at, u64 rest, Data<F> d) {
  LOOP
  for (u32 i = 0; i < F::words && i * 8 < rest; i++) store(at + i * 8, rest - i * 8, d.w[i]);
}

template <class F> DEVICE bool is_vector(u64 at, u64 rest) {
  return sizeof(Data<F>) == sizeof(Vector) && rest >= sizeof(Vector) && at % sizeof(Vector) == 0;
}

// load_piece returns a piece of a buffer, with zeros beyond the buffer's end.
template <class F> DEVICE Data<F> load_piece(u64 buffer, u64 piece, u64 bytes) {
  const u64 at = buffer + F::offset_of(piece), rest = rest_of<F>(piece, bytes);
  if constexpr (F::words == 1) {
    return {load(at, rest)};
  } else {
    Vector v = {};
    if (is_vector<F>(at, rest))
      v = load_vector(at);
    else if (UNLIKELY(rest > 0))
      return load_some<F>(at, rest);
    return {v.low, v.high};
  }
}

template <class F> DEVICE void store_piece(u64 buffer, u64 piece, u64 bytes, const Data<F> &d) {
  const u64 at = buffer + F::offset_of(piece), rest = rest_of<F>(piece, bytes);
  if (F::words == 1)
    store(at, rest, d.w[0]);
  else if (is_vector<F>(at, rest))
    store_vector(at, {d.w[0], d.w[1]});
  else if (UNLIKELY(rest > 0))
    store_some<F>(at, rest, d);
}

// Slots says where units are in a mailbox: those of one rank after those of another.
template <class F> struct Slots {
  u64 at, stride;

  GENERIC static Slots of(u64 at, u64 units) { return {at, units * F::size}; }

  GENERIC u64 of_piece(u32 rank, u64 piece) const { return at + rank * stride + piece * (F::size / F::threads); }
};

// Pieces are the pieces of one thread: from first on, at a step.
struct Pieces {
  u64 first, step, end;

  template <class F> GENERIC static Pieces of(const Grid &g, u64 units) {
    return {g.block * g.threads + g.thread, (u64)g.blocks * g.threads, units * F::threads};
  }
};

// room_for returns for how many ranks there is room in registers: for all that a kernel may have.
constexpr u32 room_for(u32 ranks) { return ranks ? ranks : (u32)carillon_max_ranks; }

// take waits for a piece from every other rank. data is by rank, and already has this rank's own.
template <class F, u32 room>
DEVICE bool take(const Grid &g, const carillon_args &a, Operation &op, Slots<F> slots, u64 piece, u32 phase,
                 Data<F> (&data)[room]) {
  constexpr bool two = room == 2; // there is only one other rank: the code is half as long
  constexpr u32 most = two ? 1 : room;
  auto from = [&](u32 i) { return two ? 1 - a.rank : i; };
  u32 missing = two ? 1 : op.others;
  return wait<F>(g, a, op, phase, [&](Missing &m) {
    typename F::Raw got[most];
    UNROLL
    for (u32 i = 0; i < most; i++)
      if (missing >> i & 1) got[i] = F::fetch(a.window[0] + slots.of_piece(from(i), piece));
    UNROLL
    for (u32 i = 0; i < most; i++) {
      if (!(missing >> i & 1)) continue;
      u32 seen[2];
      Data<F> d;
      if (!F::complete(got[i], op.flag, d, seen)) {
        m = {from(i), op.flag, seen[0], seen[1], false};
        continue;
      }
      missing &= ~(1u << i);
      if (two)
        data[0] = a.rank ? d : data[0], data[1] = a.rank ? data[1] : d;
      else
        data[i] = d;
    }
    return missing == 0;
  });
}

// put and shift are for arrays that stay in registers: only constants may index them. put sets the entry of one rank,
// and clears the others.
template <class D, u32 ranks> DEVICE void put(D (&data)[ranks], u32 rank, const D &value) {
  UNROLL
  for (u32 r = 0; r < ranks; r++) data[r] = r == rank ? value : D{};
}

template <class D, u32 ranks> DEVICE void shift(D (&data)[ranks]) {
  UNROLL
  for (u32 r = 1; r < ranks; r++) data[r - 1] = data[r];
}

// copies gives each rank what others send to it: all-gather, all-to-all, broadcast, gather, scatter, barrier. The
// number of ranks is a constant if it is 2, 4 or 8, as in one_shot.
template <class F, u32 ranks> DEVICE void copies(const Grid &g, const carillon_args &a) {
  constexpr u32 room = room_for(ranks);
  const u64 units = units_of<F>(a.bytes);
  const Pieces p = Pieces::of<F>(g, units);
  auto part = [&](u64 piece, u32 r) {
    return a.send_to >> r & 1 ? load_piece<F>(a.send + r * a.send_stride, piece, a.bytes) : Data<F>{};
  };
  const u32 all = ranks ? ranks : a.ranks;
  const carillon_counts before = counts_of(g, a);
  const Data<F> first = p.first < p.end ? part(p.first, behind(a, all, 1)) : Data<F>{};
  Operation op = begin_flagged(g, a, before, all, F::mailbox);
  if (F::announced) announce(g, a, op);
  const auto slots = Slots<F>::of(op.half, units);
  for (u64 i = p.first; i < p.end; i += p.step) {
    UNROLL
    for (u32 k = 1; k < room; k++) {
      if (k >= op.ranks) continue;
      const Data<F> data = k == 1 && i == p.first ? first : part(i, behind(a, op, k));
      F::send(a.window[k] + slots.of_piece(a.rank, i), data, op.flag);
    }
  }
  for (u64 i = p.first; i < p.end; i += p.step) {
    Data<F> data[room];
    put(data, a.rank, part(i, a.rank));
    if (!take<F>(g, a, op, slots, i, carillon_data, data)) break;
    UNROLL
    for (u32 r = 0; r < room; r++)
      if (r < op.ranks && a.recv_from >> r & 1) store_piece<F>(a.recv + r * a.recv_stride, i, a.bytes, data[r]);
  }
  end(g, a, op);
}

// contribution returns this rank's input to a reduction.
template <class F, class T> DEVICE Data<F> contribution(const carillon_args &a, u64 buffer, u64 piece, u64 bytes) {
  Data<F> d = load_piece<F>(buffer, piece, bytes);
  if (UNLIKELY(a.reduction == carillon_premul_sum)) {
    UNROLL
    for (u64 &w : d.w) w = scaled<T>(w, a.factor);
  }
  return d;
}

// Contributions holds the contributions of all ranks, to pass them by value.
template <class F, u32 room> struct Contributions {
  Data<F> of[room];
};

// reduced_otherwise is for all reductions except the sum. It isn't inlined, since a kernel takes as long to fetch its
// instructions as to run them.
template <class F, class T, u32 room>
RARE Data<F> reduced_otherwise(u32 reduction, u32 ranks, Contributions<F, room> data) {
  typedef Elements<T, sizeof(Data<F>)> E;
  E result = E::of(data.of[0].w);
  LOOP
  for (u32 r = 1; r < ranks; r++) result.combine_with(reduction, E::of(data.of[r].w));
  if (reduction == carillon_avg) result.divide_by(ranks);
  Data<F> d;
  result.put(d.w);
  return d;
}

// reduced combines the data of all ranks, in rank order.
template <class F, class T, u32 room>
DEVICE Data<F> reduced(const carillon_args &a, const Operation &op, Data<F> (&data)[room]) {
  if (UNLIKELY(a.reduction != carillon_sum)) {
    Contributions<F, room> all;
    UNROLL
    for (u32 r = 0; r < room; r++) all.of[r] = data[r];
    return reduced_otherwise<F, T>(a.reduction, op.ranks, all);
  }
  typedef Elements<T, sizeof(Data<F>)> E;
  E sum = E::of(data[0].w);
  LOOP
  for (u32 r = 1; r < op.ranks; r++) {
    shift(data);
    sum.add_to(E::of(data[0].w));
  }
  Data<F> d;
  sum.put(d.w);
  return d;
}

// one_shot sends to each rank the data that it reduces: all-reduce, reduce, reduce-scatter.
//
// The number of ranks is a constant if it is 2, 4 or 8: that saves 0.5 of 2.5 microseconds for two ranks, 0.3 for four.
template <class F, class T, u32 ranks> DEVICE void one_shot(const Grid &g, const carillon_args &a) {
  constexpr u32 room = room_for(ranks);
  const u64 units = units_of<F>(a.bytes);
  const Pieces p = Pieces::of<F>(g, units);
  auto part = [&](u64 piece, u32 r) { return contribution<F, T>(a, a.send + r * a.send_stride, piece, a.bytes); };
  const u32 all = ranks ? ranks : a.ranks;
  const bool scatters = a.send_stride != 0;
  const carillon_counts before = counts_of(g, a);
  const Data<F> first = p.first < p.end ? part(p.first, scatters ? behind(a, all, 1) : a.rank) : Data<F>{};
  Operation op = begin_flagged(g, a, before, all, F::mailbox);
  if (F::announced) announce(g, a, op);
  const auto slots = Slots<F>::of(op.half, units);
  for (u64 i = p.first; i < p.end; i += p.step) {
    Data<F> data = i == p.first ? first : part(i, scatters ? behind(a, all, 1) : a.rank);
    UNROLL
    for (u32 k = 1; k < room; k++) {
      if (k >= op.ranks) continue;
      if (k > 1 && scatters) data = part(i, behind(a, all, k));
      F::send(a.window[k] + slots.of_piece(a.rank, i), data, op.flag);
    }
  }
  for (u64 i = p.first; i < p.end; i += p.step) {
    Data<F> data[room];
    put(data, a.rank, i == p.first && !scatters ? first : part(i, a.rank));
    if (!take<F>(g, a, op, slots, i, carillon_data, data)) break;
    if (a.recv_from) store_piece<F>(a.recv, i, a.bytes, reduced<F, T>(a, op, data));
  }
  end(g, a, op);
}

// two_shot is all-reduce: each rank reduces its share and sends the result to all. A share is a number of whole units.
template <class F, class T> DEVICE void two_shot(const Grid &g, const carillon_args &a) {
  Operation op = begin_flagged(g, a, counts_of(g, a), a.ranks, F::mailbox);
  if (F::announced) announce(g, a, op);
  const u64 units = (units_of<F>(a.bytes) + op.ranks - 1) / op.ranks, share = units * F::payload;
  const Pieces p = Pieces::of<F>(g, units);
  const auto parts = Slots<F>::of(op.half, units);
  const auto results = Slots<F>::of(parts.at + op.ranks * parts.stride, units);
  auto bytes_from = [&](u32 r) { return r * share < a.bytes ? a.bytes - r * share : 0; }; // share r and the next ones
  auto part = [&](u64 piece, u32 r) { return contribution<F, T>(a, a.send + r * share, piece, bytes_from(r)); };
  for (u64 i = p.first; i < p.end; i += p.step) {
    LOOP
    for (u32 k = 1; k < op.ranks; k++)
      F::send(of(a.window, k) + parts.of_piece(a.rank, i), part(i, behind(a, op, k)), op.flag);
  }
  Data<F> data[carillon_max_ranks];
  for (u64 i = p.first; i < p.end; i += p.step) {
    put(data, a.rank, part(i, a.rank));
    if (!take<F>(g, a, op, parts, i, carillon_data, data)) break;
    const Data<F> result = reduced<F, T>(a, op, data);
    UNROLL
    for (u32 k = 1; k < carillon_max_ranks; k++)
      if (k < op.ranks) F::send(a.window[k] + results.of_piece(a.rank, i), result, op.flag);
    store_piece<F>(a.recv + a.rank * share, i, bytes_from(a.rank), result);
  }
  for (u64 i = p.first; i < p.end && !op.left; i += p.step) {
    if (!take<F>(g, a, op, results, i, carillon_results, data)) break;
    LOOP
    for (u32 r = 0; r < op.ranks; r++, shift(data))
      if (r != a.rank) store_piece<F>(a.recv + r * share, i, bytes_from(r), data[0]);
  }
  end(g, a, op);
}
