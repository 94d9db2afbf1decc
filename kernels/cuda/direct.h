// Much data between ranks that reach each other's buffers: nothing is staged. Each rank reads from all what it reduces,
// and writes the result to all; or writes to all what they gather.
//
// Whether they reach them, ranks tell each other in the kernel, since no host knows what the others were called with:
// they meet, each with the addresses at which the others reach its buffers. If one has none, all go through FIFOs.
#pragma once

#include "work.h"

DEVICE u64 divided_up(u64 bytes, u64 by) { return (bytes + by - 1) / by; }

// Shares are what each rank reduces: its part of a reduce-scatter, else as much as the others.
struct Shares {
  bool scatter;
  u64 bytes, share; // share: of the largest one

  GENERIC static Shares of(const carillon_args &a, const Operation &op) {
    if (a.send_stride) return {true, a.bytes, a.bytes};
    return {false, a.bytes, divided_up(divided_up(a.bytes, op.ranks), sizeof(Vector)) * sizeof(Vector)};
  }

  GENERIC u64 at(const carillon_args &a, u32 rank) const { return rank * (scatter ? a.send_stride : share); }

  GENERIC u64 of_rank(u32 rank) const {
    const u64 at = rank * share;
    return scatter ? bytes : at >= bytes ? 0 : bytes - at < share ? bytes - at : share;
  }
};

// Met is what came of a meeting, the same on all ranks unless the communicator ends.
enum class Met { directly, staged, left };

// Meeting is what the threads of a block share of one: where the buffers of all ranks are, as this rank reaches them.
struct Meeting {
  static constexpr u32 most = carillon_buffers * (carillon_max_ranks - 1);
  enum : u32 { awaited, here, given_up };

  u32 flag;
  u32 state[most]; // of what it waits for
  u64 at[carillon_buffers][carillon_max_ranks];

  GENERIC void await(u32 n) {
    LOOP
    for (u32 i = 0; i < n; i++) state[i] = awaited;
  }

  GENERIC bool left(u32 n) const {
    bool left = false;
    LOOP
    for (u32 i = 0; i < n; i++) left |= state[i] == given_up;
    return left;
  }

  // reached tells whether this rank reaches what the call needs.
  GENERIC bool reached(u32 ranks, u32 needs) const {
    bool all = true;
    LOOP
    for (u32 i = 0; i < carillon_buffers * ranks; i++)
      all &= !(needs >> i % carillon_buffers & 1) || at[i % carillon_buffers][i / carillon_buffers] != 0;
    return all;
  }
};

// await_all waits for n things, each awaited by a thread: Take(i, missing) is true when the i-th, which is of rank
// of(i), is there. The block's first thread then waits for the other threads, so that it can tell for whom they wait.
template <class Of, class Take>
DEVICE void await_all(const Grid &g, const carillon_args &a, Operation &op, Meeting &m, u32 phase, u32 n, Of &&of,
                      Take &&take) {
  LOOP
  for (u32 i = g.thread; i < n; i += g.threads) {
    const bool here = wait(g, a, op, phase, [&](Missing &missing) {
      missing.peer = of(i);
      return take(i, missing);
    });
    store_shared(&m.state[i], here ? Meeting::here : Meeting::given_up);
  }
  if (g.thread == 0) {
    u32 next = 0;
    wait(g, a, op, phase, [&](Missing &missing) {
      while (next < n && load_shared(&m.state[next]) != Meeting::awaited) next++;
      if (next < n) missing.peer = of(next);
      return next == n;
    });
  }
  g.sync();
  op.left = m.left(n);
}

// entry_at is where a window has what a block of some rank says of a buffer. A rank that writes that of round n has
// ended n-1, in which each block heard from those of the same number; so they have ended n-2: two halves are enough.
DEVICE u64 entry_at(const Grid &g, const carillon_args &a, u32 flag, u32 rank, u32 buffer) {
  const u32 half = flag >> 8 & 1, entry = (half * carillon_max_blocks + g.block) * carillon_max_ranks + rank;
  return control(a) + carillon_entries + (entry * carillon_buffers + buffer) * carillon_packet;
}

DEVICE u64 leave_at(const Grid &g, const carillon_args &a, u32 rank) {
  return control(a) + carillon_leaves + (g.block * carillon_max_ranks + rank) * 4;
}

// meet is by all threads. What ranks have put on their streams before is done when they have met.
DEVICE Met meet(const Grid &g, const carillon_args &a, const carillon_reach &reach, Operation &op, Meeting &m) {
  if (!reach.needs) return Met::staged;
  const u32 n = carillon_buffers * (op.ranks - 1);
  if (g.thread == 0) {
    const u64 rounds = a.state + carillon_rounds + g.block * 4;
    const u32 round = load_u32(rounds) + 1;
    *reinterpret_cast<u32 *>(rounds) = round;
    m.flag = round << 8 | a.signature;
    LOOP
    for (u32 b = 0; b < carillon_buffers; b++) m.at[b][a.rank] = reach.at[b][0];
    m.await(n);
  }
  g.sync();
  auto buffer = [](u32 i) { return i % carillon_buffers; };
  auto rank = [&](u32 i) { return behind(a, op, 1 + i / carillon_buffers); };
  LOOP
  for (u32 i = g.thread; i < n; i += g.threads) {
    const u32 k = 1 + i / carillon_buffers;
    const u64 at = reach.at[buffer(i)][k];
    store_entry(a.window[k] + entry_at(g, a, m.flag, a.rank, buffer(i)),
                {(u32)at, m.flag, (u32)(at >> 32), m.flag});
  }
  await_all(g, a, op, m, carillon_data, n, rank, [&](u32 i, Missing &missing) {
    const Packet p = load_entry(a.window[0] + entry_at(g, a, m.flag, rank(i), buffer(i)));
    missing.flag = m.flag, missing.seen = p.flag_low, missing.seen_too = p.flag_high;
    m.at[buffer(i)][rank(i)] = p.low | (u64)p.high << 32;
    return p.flag_low == m.flag && p.flag_high == m.flag;
  });
  return op.left ? Met::left : m.reached(op.ranks, reach.needs) ? Met::directly : Met::staged;
}

// part waits until the others have done what they do in this rank's buffers. By all threads.
DEVICE void part(const Grid &g, const carillon_args &a, Operation &op, Meeting &m) {
  const u32 n = op.ranks - 1;
  g.sync();
  if (g.thread == 0) m.await(n);
  g.sync();
  LOOP
  for (u32 i = g.thread; i < n; i += g.threads) {
    fence();
    store_flag(a.window[1 + i] + leave_at(g, a, a.rank), m.flag);
  }
  auto rank = [&](u32 i) { return behind(a, op, 1 + i); };
  await_all(g, a, op, m, carillon_results, n, rank, [&](u32 i, Missing &missing) {
    missing.flag = m.flag, missing.seen = load_flag(a.window[0] + leave_at(g, a, rank(i)));
    return missing.seen == m.flag;
  });
}

// everybody is all threads of the grid.
DEVICE Workers everybody(const Grid &g) { return {g.block * g.threads + g.thread, g.blocks * g.threads}; }

// reduce_directly reduces this rank's share. Nobody else reads or writes that part of any buffer, so that results may
// be where the data was.
template <class T>
DEVICE void reduce_directly(const Grid &g, const carillon_args &a, Operation &op, Meeting &m, Task &t) {
  const Shares shares = Shares::of(a, op);
  if (g.thread == 0) {
    const u64 at = shares.at(a, a.rank);
    t.sources = op.ranks, t.targets = 0, t.bytes[0] = shares.of_rank(a.rank);
    t.to[t.targets++] = a.recv + (shares.scatter ? 0 : at);
    LOOP
    for (u32 k = 0; k < op.ranks; k++) {
      const u32 r = behind(a, op, k);
      t.from[r] = m.at[carillon_send][r] + at;
      if (k > 0 && !shares.scatter) t.to[t.targets++] = m.at[carillon_recv][r] + at;
    }
  }
  g.sync();
  reduce_all<T>(everybody(g), a, t);
  part(g, a, op, m);
}

// copy_directly writes to each rank what this one has for it.
DEVICE void copy_directly(const Grid &g, const carillon_args &a, Operation &op, Meeting &m) {
  LOOP
  for (u32 k = 1; k <= op.ranks; k++) { // its own last
    const u32 r = behind(a, op, k % op.ranks);
    const u64 from = a.send + r * a.send_stride, to = m.at[carillon_recv][r] + a.rank * a.recv_stride;
    if (from != to) copy(everybody(g), to, from, a.bytes);
  }
  part(g, a, op, m);
}
