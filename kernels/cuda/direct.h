// Large messages between ranks that can access each other's buffers: nothing is staged. In a reduction, each rank reads
// its share from all ranks and writes the result to all ranks that get it. In a gather, each rank reads what it gets.
//
// Reading over NVLink is slower than writing. So ranks may also push: their data goes through FIFOs, and the results
// are written directly to their destinations.
//
// No host knows which buffers the other ranks passed, so ranks find out in the kernel whether they can do this. They
// meet, each with the addresses at which the others access its buffers: if one of these is missing, all use FIFOs.
#pragma once

#include "work.h"

DEVICE u64 divided_up(u64 bytes, u64 by) { return (bytes + by - 1) / by; }

// Shares are what each rank reduces: its part of a reduce-scatter, otherwise equal shares.
struct Shares {
  bool scatter;
  u64 bytes, share; // share: the largest one's size

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

// Met is the outcome of a meeting: the same on all ranks, unless the communicator ends.
enum class Met : u32 { directly, staged, left };

// Meeting is the state of a meeting that the threads of a block share.
struct Meeting {
  static constexpr u32 most = carillon_buffers * (carillon_max_ranks - 1);
  enum State : u32 { awaited, here, unreached, given_up }; // the highest decides

  u32 round;
  u32 unread; // see await_loads
  Met met;
  u32 entries[most], leaves[most];             // the State of each one
  u64 at[carillon_buffers][carillon_max_ranks]; // addresses at which this rank accesses the buffers of all ranks
};

// await_all waits for n things, with one thread for each: take(i, missing) polls the i-th, which is from rank of(i).
// The block's first thread collects the states, so that it can report which rank is missing. own is the state of this
// rank's own thing: if that is here, and all others are, the first thread calls then.
template <class Of, class Take, class Then>
DEVICE void await_all(const Grid &g, const carillon_args &a, Operation &op, Meeting &m, u32 *states, u32 own, u32 phase,
                      u32 n, Of &&of, Take &&take, Then &&then) {
  LOOP
  for (u32 i = g.thread; i < n; i += g.threads) {
    u32 state = Meeting::awaited;
    const bool there = wait(g, a, op, phase, [&](Missing &missing) {
      missing.peer = of(i);
      return (state = take(i, missing)) != Meeting::awaited;
    });
    store_shared(&states[i], there ? state : Meeting::given_up);
  }
  if (g.thread == 0) {
    u32 next = 0, worst = own;
    wait(g, a, op, phase, [&](Missing &missing) {
      for (u32 state; next < n && (state = load_shared(&states[next])) != Meeting::awaited; next++)
        if (state > worst) worst = state;
      if (next < n) missing.peer = of(next), missing.indirect = true;
      return next == n;
    });
    m.met = op.left || worst == Meeting::given_up ? Met::left : worst == Meeting::here ? Met::directly : Met::staged;
    if (m.met == Met::directly) then();
  }
  g.sync();
  op.left = m.met == Met::left;
}

DEVICE u64 rounds_at(const Grid &g, const carillon_args &a) { return a.state + carillon_rounds + g.block * 4; }

// entry_at returns where a block of some rank announces a buffer in a window. Two halves are enough: a block that
// writes entries of round n has ended n-1, in which it heard from the blocks with the same number, so these have ended
// n-2.
DEVICE u64 entry_at(const Grid &g, const carillon_args &a, u32 flag, u32 rank, u32 buffer) {
  const u32 half = flag >> 8 & 1, entry = (half * carillon_max_blocks + g.block) * carillon_max_ranks + rank;
  return control(a) + carillon_entries + (entry * carillon_buffers + buffer) * carillon_packet;
}

DEVICE u64 leave_at(const Grid &g, const carillon_args &a, u32 rank) {
  return control(a) + carillon_leaves + (g.block * carillon_max_ranks + rank) * 4;
}

// entries returns how many entries a block gets: one for each buffer, from the block with the same number of each other
// rank.
DEVICE u32 entries(u32 ranks) { return carillon_buffers * (ranks - 1); }

DEVICE u32 flag_of_round(const carillon_args &a, u32 round) { return round << 8 | a.signature; }

// enter tells the other ranks where they access this rank's buffers. It is the first thing that a kernel does, since
// the stores take a while to arrive. round is one more than the count at rounds_at.
DEVICE void enter(const Grid &g, const carillon_args &a, const carillon_reach &reach, u32 round) {
  if (!reach.needs) return;
  const u32 flag = flag_of_round(a, round);
  LOOP
  for (u32 i = g.thread; i < entries(a.ranks); i += g.threads) {
    const u32 buffer = i % carillon_buffers, k = 1 + i / carillon_buffers;
    const u64 at = of(buffer == carillon_send ? reach.at[carillon_send] : reach.at[carillon_recv], k);
    store_entry(of(a.window, k) + entry_at(g, a, flag, a.rank, buffer), {(u32)at, flag, (u32)(at >> 32), flag});
  }
}

// leave tells the other ranks that this rank no longer accesses their buffers. It must be called by all threads of a
// block. Data that was read there is in registers (see await_loads), or was stored; data that was written there needs a
// fence.
DEVICE void leave(const Grid &g, const carillon_args &a, const Operation &op, const Meeting &m, bool written) {
  LOOP
  for (u32 k = 1 + g.thread; k < op.ranks; k += g.threads) {
    if (written) fence();
    store_flag(a.window[k] + leave_at(g, a, a.rank), m.round);
  }
}

// meet must be called by all threads, after enter. Meanwhile the first thread plans the work, and completes the plan
// (then) if ranks can access each other's buffers. When the ranks have met, all earlier work on any rank's stream is
// complete.
template <class Plan, class Then>
DEVICE Met meet(const Grid &g, const carillon_args &a, const carillon_reach &reach, Operation &op, u32 round,
                Meeting &m, Plan &&plan, Then &&then) {
  if (!reach.needs) return Met::staged;
  const u32 n = entries(op.ranks), flag = flag_of_round(a, round);
  u32 own = Meeting::here;
  auto buffer = [](u32 i) { return i % carillon_buffers; };
  auto rank = [&](u32 i) { return behind(a, op, 1 + i / carillon_buffers); };
  LOOP
  for (u32 i = g.thread; i < n; i += g.threads) m.entries[i] = m.leaves[i] = Meeting::awaited;
  g.sync(); // and all threads have read the round
  if (g.thread == 0) {
    *reinterpret_cast<u32 *>(rounds_at(g, a)) = round;
    m.round = round;
    LOOP
    for (u32 b = 0; b < carillon_buffers; b++) {
      m.at[b][a.rank] = reach.at[b][0];
      if (reach.needs >> b & 1 && reach.at[b][0] == 0) own = Meeting::unreached;
    }
    plan();
  }
  await_all(
      g, a, op, m, m.entries, own, carillon_data, n, rank,
      [&](u32 i, Missing &missing) {
        const Packet p = load_entry(a.window[0] + entry_at(g, a, flag, rank(i), buffer(i)));
        missing.flag = flag, missing.seen = p.flag_low, missing.seen_too = p.flag_high;
        if (p.flag_low != flag || p.flag_high != flag) return (u32)Meeting::awaited;
        m.at[buffer(i)][rank(i)] = p.low | (u64)p.high << 32;
        const bool needed = reach.needs >> buffer(i) & 1;
        return (u32)(needed && (p.low | p.high) == 0 ? Meeting::unreached : Meeting::here);
      },
      then);
  if (m.met == Met::staged) leave(g, a, op, m, false);
  return m.met;
}

// part must be called by all threads: the rank leaves the others' buffers, and waits until they have left its own.
DEVICE void part(const Grid &g, const carillon_args &a, Operation &op, Meeting &m, bool written) {
  auto rank = [&](u32 i) { return behind(a, op, 1 + i); };
  g.sync();
  leave(g, a, op, m, written);
  await_all(
      g, a, op, m, m.leaves, Meeting::here, carillon_results, op.ranks - 1, rank,
      [&](u32 i, Missing &) {
        const bool left = load_flag(a.window[0] + leave_at(g, a, rank(i))) == m.round;
        return (u32)(left ? Meeting::here : Meeting::awaited);
      },
      [] {});
}

constexpr u64 longest_way = 100000;     // nanoseconds, far longer than a store takes to arrive
constexpr u64 longest_stay = 500000000; // nanoseconds: how long others may stay in the buffers of a rank that gives up

// give_up must be called by all threads of a block that leaves a meeting early. It takes its entries back, so that no
// rank that arrives later, or hasn't read them yet, accesses this rank's buffers. Then it waits for the ranks that may
// be accessing them: those whose entries are here and not taken back, and that haven't left. A rank that has read this
// rank's entries had sent its own before, which arrive within longest_way. A rank that died never leaves, hence
// longest_stay. What this rank wrote into others' buffers, before a barrier, arrives before its entries are taken back:
// those ranks wait for that.
RARE void give_up(Thread self, const carillon_args &a, const Meeting &m) {
  const Grid g = Grid::of(self);
  const u32 ranks = a.ranks, flag = flag_of_round(a, m.round);
  fence();
  LOOP
  for (u32 i = g.thread; i < entries(ranks); i += g.threads)
    store_entry(a.window[1 + i / carillon_buffers] + entry_at(g, a, flag, a.rank, i % carillon_buffers), {0, 0, 0, 0});
  fence();
  g.sync();
  const u64 begun = now();
  LOOP
  for (u32 k = 1 + g.thread; k < ranks; k += g.threads) {
    const u32 rank = a.rank + k < ranks ? a.rank + k : a.rank + k - ranks;
    for (bool there = true;; give_way()) {
      const u64 waited = now() - begun;
      if (waited >= (there ? longest_stay : longest_way)) break;
      there = load_flag(a.window[0] + leave_at(g, a, rank)) != m.round;
      LOOP
      for (u32 b = 0; b < carillon_buffers; b++)
        there = there && load_entry(a.window[0] + entry_at(g, a, flag, rank, b)).flag_low == flag;
    }
  }
}

// everybody returns all threads of the grid.
DEVICE Workers everybody(const Grid &g) { return {g.block * g.threads + g.thread, g.blocks * g.threads}; }

// at_once is how many vectors a thread holds when two ranks read all of each other's data: up to 4 MiB with a grid of
// 63 blocks. Each rank stores the result for itself, once the other rank has read, too.
constexpr u32 at_once = 10;

// plan_reduction sets what this rank reduces: everything if there are two ranks and the threads can hold it, otherwise
// its share. No other rank accesses that share of any buffer, so results may overwrite the data.
DEVICE void plan_reduction(const Grid &g, const carillon_args &a, const Operation &op, Task &t) {
  const Shares shares = Shares::of(a, op);
  t.whole = !shares.scatter && op.ranks == 2 && a.reduction == carillon_sum &&
            a.bytes <= (u64)g.blocks * g.threads * at_once * sizeof(Vector) && a.bytes % sizeof(Vector) == 0;
  t.offset = shares.at(a, a.rank), t.bytes[0] = shares.of_rank(a.rank);
  t.sources = op.ranks, t.targets = shares.scatter ? 1 : op.ranks;
  t.to[0] = a.recv + (shares.scatter ? 0 : t.offset);
}

// follow_up completes the plan once addresses are known. Whether buffers are aligned is the same on all ranks.
DEVICE void follow_up(const carillon_args &a, const Operation &op, const Meeting &m, Task &t) {
  if (t.whole) t.whole = aligned(m.at[carillon_send][0] | m.at[carillon_send][1] | m.at[carillon_recv][0] |
                                 m.at[carillon_recv][1]);
  if (t.whole) t.offset = 0, t.bytes[0] = a.bytes, t.to[0] = a.recv;
  LOOP
  for (u32 k = 0; k < op.ranks; k++) {
    const u32 r = behind(a, op, k);
    t.from[r] = m.at[carillon_send][r] + t.offset;
    if (k > 0) t.to[k] = m.at[carillon_recv][r] + t.offset; // beyond the number of targets for a reduce-scatter
  }
}

template <class T>
DEVICE void reduce_directly(const Grid &g, const carillon_args &a, Operation &op, Meeting &m, const Task &t) {
  const Workers w = everybody(g);
  if (t.whole) {
    Some<at_once> sum = {w.thread * sizeof(Vector), t.bytes[0], w.threads * (u32)sizeof(Vector), {}};
    sum_pair<T>(t, sum);
    u64 any = 0;
    UNROLL
    for (u32 j = 0; j < at_once; j++) any ^= sum.v[j].low;
    await_loads(&m.unread, any);
    part(g, a, op, m, false);
    if (!op.left) sum.store(t.to[0]);
    return;
  }
  reduce_all<T>(w, a, t);
  part(g, a, op, m, t.targets > 1);
}

// plan_copies sets what this rank reads: from the other ranks, and its own part unless that is in place.
DEVICE void plan_copies(const carillon_args &a, const Operation &op, const Meeting &m, Task &t) {
  t.targets = 0;
  LOOP
  for (u32 k = 1; k <= op.ranks; k++) {
    const u32 r = behind(a, op, k % op.ranks);
    const u64 from = m.at[carillon_send][r] + a.rank * a.send_stride, to = a.recv + r * a.recv_stride;
    if (from != to) t.copy(to, from, a.bytes);
  }
}

DEVICE void copy_directly(const Grid &g, const carillon_args &a, Operation &op, Meeting &m, const Task &t) {
  constexpr u32 n = 4;
  const Workers w = everybody(g);
  const u32 stride = w.threads * (u32)sizeof(Vector);
  u64 any = 0, end = 0;
  LOOP
  for (u32 i = 0; i < t.targets; i++) any |= t.from[i] | t.to[i];
  if (aligned(any)) end = a.bytes / sizeof(Vector) * sizeof(Vector);
  LOOP
  for (u64 at = w.thread * sizeof(Vector); at < end; at += n * stride) {
    Some<n> now = {at, end, stride, {}}, next = now;
    now.load(t.from[0]);
    LOOP
    for (u32 i = 0; i < t.targets; i++, now = next) {
      if (i + 1 < t.targets) next.load(t.from[i + 1]);
      now.store(t.to[i]);
    }
  }
  LOOP
  for (u32 i = 0; i < t.targets; i++) copy(w, t.to[i] + end, t.from[i] + end, a.bytes - end);
  part(g, a, op, m, false);
}
