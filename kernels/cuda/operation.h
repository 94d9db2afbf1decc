// What every kernel does besides moving data: counting, waiting for other ranks, and reporting to the host.
#pragma once

#include "platform.h"

// A rank counts its collectives, and the launches by CUDA graphs, in GPU memory, since the host doesn't see replays of
// a graph. Collectives whose data comes with its flags have an epoch: its last 24 bits and the call's signature form
// the flag.
//
// Two halves of a mailbox are enough, since in these collectives every rank hears from every other rank: a rank that
// writes data of epoch e has ended e-1, so its peer has entered e-1, so the peer has ended e-2, which read the same
// half.
struct Operation {
  carillon_counts counts; // including this launch
  u32 number;             // number of the launch
  u32 flag;
  u64 half;          // offset in a mailbox
  u32 ranks, others; // number of ranks, and the other ranks as bits
  bool left;         // the kernel has given up, and does nothing more
};

// Flags repeat after 2^24 epochs, so halves are cleared from time to time: the next epoch's half, before anything is
// sent in this epoch.
constexpr u32 epochs_until_clean = 1 << 20;

constexpr u64 first_patience = 50000, longest_patience = 400000; // cycles: 30 and 220 microseconds on an H200

constexpr u64 look_every = 20000; // nanoseconds

// A word is as large as a packet, and written like one.
DEVICE void store_word(u64 at, const carillon_word &w) {
  store_packet(at, {w.number, w.phase | (u32)w.peer << 8 | (u32)w.blocks << 16, w.operation, w.replayed});
}

DEVICE carillon_word word_of(const Grid &g, const carillon_args &a, const Operation &op, u32 phase, u32 peer) {
  return {op.number, (u8)phase, (u8)peer, (u16)g.blocks, a.operation, op.counts.replayed};
}

DEVICE u64 words_of(const Grid &g, const carillon_args &a) { return a.words + g.block * sizeof(carillon_words); }

DEVICE u64 control(const carillon_args &a) { return 2 * carillon_mailboxes * a.half; }

// counts_of returns the rank's counts before this launch. They are loaded early, along with the data, before either is
// needed.
DEVICE carillon_counts counts_of(const Grid &g, const carillon_args &a) {
  Packet p = load_packet(a.state + carillon_counters + g.block * sizeof(carillon_counts));
  return {p.low, p.flag_low, p.high, p.flag_high};
}

DEVICE Operation begin(const carillon_args &a, carillon_counts before, u32 ranks) {
  Operation op = {};
  op.ranks = ranks;
  op.others = ((1u << ranks) - 1) & ~(1u << a.rank);
  op.counts = before;
  op.number = a.number;
  if (a.operation) {
    op.number = ++op.counts.replays;
    if (a.signature) op.counts.replayed++;
  }
  if (a.signature) op.counts.collectives++;
  return op;
}

// begin_flagged begins a collective whose data comes with its flags, in a mailbox.
DEVICE Operation begin_flagged(const Grid &g, const carillon_args &a, carillon_counts before, u32 ranks, u32 mailbox) {
  Operation op = begin(a, before, ranks);
  const u32 epoch = ++op.counts.epoch;
  op.flag = epoch << 8 | a.signature;
  op.half = (2 * mailbox + (epoch & 1)) * a.half;
  if ((epoch + 1) % epochs_until_clean < 2) {
    LOOP
    for (u32 m = 0; m < carillon_mailboxes; m++) {
      const u64 next = a.window[0] + (2 * m + 1 - (epoch & 1)) * a.half;
      for (u64 i = (u64)(g.block * g.threads + g.thread) * carillon_packet; i < a.half;
           i += (u64)g.blocks * g.threads * carillon_packet)
        store_packet(next + i, {0, 0, 0, 0});
    }
    fence();
    g.sync();
  }
  return op;
}

// announce tells every rank which collective this rank is in, unless it is in LL: a rank that waits in LL for a rank in
// another kernel gets no flag from that rank. It checks the announcement after a long wait.
DEVICE void announce(const Grid &g, const carillon_args &a, const Operation &op) {
  if (g.block || g.thread || !a.signature) return;
  LOOP
  for (u32 k = 1; k < op.ranks; k++)
    store_u64(a.window[k] + control(a) + carillon_entered + a.rank * 8,
              op.counts.collectives | (u64)a.signature << 32);
}

// end must be called by all threads. Each block writes its own counts, and those of blocks that this launch doesn't
// have. It records that it is done: in GPU memory, unless it is to tell the host. A store to host memory delays the
// next kernel until the GPU knows that it has arrived, for most of a microsecond, except for kernels of a graph.
//
// The stream's next kernel may take this one's place on the GPU from now on. Not earlier: while this kernel waits for
// other ranks, they may wait for the kernel of another communicator, or of another rank, that needs that place.
DEVICE void end(const Grid &g, const carillon_args &a, const Operation &op) {
  g.sync(); // all threads have read the counts
  allow_successor();
  if (op.left) return;
  const carillon_counts &c = op.counts;
  for (u32 b = g.block + g.thread * g.blocks; b < carillon_max_blocks; b += g.threads * g.blocks)
    store_packet(a.state + carillon_counters + b * sizeof c, {c.replays, c.replayed, c.collectives, c.epoch});
  if (g.thread == 0)
    store_word((a.tells ? a.words : a.state + carillon_ended) + g.block * sizeof(carillon_words),
               word_of(g, a, op, carillon_done, 0));
}

// Missing is what a thread waits for: a peer's flag, and what it has seen instead; or what another thread of its block
// waits for (indirect).
struct Missing {
  u32 peer, flag, seen, seen_too;
  bool indirect;

  // mismatch is true for the right number with the signature of another call. Cleared memory has no signature.
  GENERIC bool mismatch(u32 seen) const { return seen != flag && (seen ^ flag) >> 8 == 0 && (seen & 0xff) != 0; }
  GENERIC bool mismatch() const { return mismatch(seen) || mismatch(seen_too); }
};

// Patience is a thread's state while it waits: when it last looked around, how many cycles it waits before it does so
// again, what it has reported, the rank whose closing it has seen plus 1 (0: none), and the phase in which it gives up
// (carillon_mismatch, carillon_closed or carillon_aborted).
struct Patience {
  u64 since;
  u32 cycles;
  u16 told;
  u8 closed;
  u8 end;
};

// Surroundings are what a waiting thread checks.
struct Surroundings {
  u64 words, end; // words of its block, and the rank's word; or 0
  u64 abort, looked;
  u64 entered, closing; // of the rank that the thread waits for
  u32 collective, signature;
  carillon_word word; // what the thread waits for
  bool tells;         // the thread is the first of its block
};

// The time at which the rank last read the abort word has this value once a kernel has given up. Later kernels give up
// as soon as they have waited for long, without a record, so the rank's word says why the first one gave up.
constexpr u64 for_ever = ~0ull;

// aborted reads the abort word, which is in host memory: if thousands of threads do so, that takes a millisecond. So
// one thread does it for the whole rank, and records the time in GPU memory; last is the previous time.
DEVICE bool aborted(u64 abort, u64 looked, u64 last) {
  const u64 t = now();
  if (abort == 0 || t - last < look_every || !first_of_warp() || !swap_u64(looked, last, t)) return false;
  return load_u32(abort) != 0;
}

// look_around is for a thread that has waited for long: it reports once what it waits for, and checks whether to give
// up. Nothing on the fast path reads host memory. What a rank has sent arrives before its closing: a thread that has
// seen the closing, polled again, and still waits for that rank, waits in vain.
RARE Patience look_around(Patience p, Surroundings s, u32 phase, Missing missing) {
  const u64 t = cycles();
  if (p.cycles == 0) p = {t, first_patience, carillon_done, 0, carillon_done};
  if (t - p.since < p.cycles) return p;
  p.since = t;
  if (p.cycles < longest_patience) p.cycles *= 2;
  const u64 last = load_u64(s.looked), entered = load_u64(s.entered);
  if (last == for_ever) {
    p.end = carillon_aborted;
    return p;
  }
  const bool other_kernel = s.signature && (u32)entered == s.collective && entered >> 32 != s.signature;
  if (aborted(s.abort, s.looked, last))
    p.end = carillon_aborted;
  else if (other_kernel || missing.mismatch())
    p.end = carillon_mismatch;
  else if (!missing.indirect && load_flag(s.closing)) {
    if (p.closed == missing.peer + 1) p.end = carillon_closed;
    p.closed = (u8)(missing.peer + 1);
  }
  if (p.end) {
    store_u64(s.looked, for_ever);
    s.word.phase = p.end;
    if (s.end) store_word(s.end, s.word);
    return p;
  }
  const u32 news = phase | (missing.peer + 1) << 8;
  if (s.words && s.tells && p.told != news) {
    p.told = (u16)news;
    store_word(s.words + sizeof(carillon_word), s.word);
  }
  return p;
}

// Alone is for a thread that waits by itself.
struct Alone {
  GENERIC static bool any(bool x) { return x; }
};

// wait polls until everything is there, and returns false if this thread must give up. poll returns whether everything
// is there, and otherwise sets missing. Threads that poll together give up if any of them does.
template <class Together = Alone, class Poll>
DEVICE bool wait(const Grid &g, const carillon_args &a, Operation &op, u32 phase, Poll &&poll) {
  Patience p = {};
  Missing missing = {};
  for (u32 turns = 1; !poll(missing); turns++) {
    give_way();
    if (turns % 32) continue;
    const Surroundings s = {
        a.words ? words_of(g, a) : 0,
        a.words ? a.words - sizeof(carillon_word) : 0,
        a.abort,
        a.state + carillon_looked,
        a.window[0] + control(a) + carillon_entered + missing.peer * 8,
        a.window[0] + control(a) + carillon_closings + missing.peer * 4,
        op.counts.collectives,
        a.signature,
        word_of(g, a, op, phase, missing.peer),
        g.thread == 0,
    };
    p = look_around(p, s, phase, missing);
    if (UNLIKELY(Together::any(p.end))) {
      op.left = true;
      return false;
    }
  }
  if (UNLIKELY(p.told))
    store_word(words_of(g, a) + sizeof(carillon_word), word_of(g, a, op, carillon_done, missing.peer));
  return true;
}

// of returns an entry of an array that only constants may index: one in the kernel parameter, or in registers.
template <class T> DEVICE T of(const T (&array)[carillon_max_ranks], u32 index) {
  T entry = array[0];
  UNROLL
  for (u32 i = 1; i < carillon_max_ranks; i++)
    if (i == index) entry = array[i];
  return entry;
}

// behind returns the rank that is k ranks after this one.
DEVICE u32 behind(const carillon_args &a, u32 ranks, u32 k) {
  return a.rank + k < ranks ? a.rank + k : a.rank + k - ranks;
}

DEVICE u32 behind(const carillon_args &a, const Operation &op, u32 k) { return behind(a, op.ranks, k); }

// load and store access up to 8 bytes of a buffer, at any alignment, but no bytes beyond its end.
RARE u64 load_bytes(u64 at, u64 bytes) {
  u64 data = 0;
  u32 i = 0;
  if (at % 4 == 0)
    for (; i + 4 <= bytes && i < 8; i += 4) data |= (u64)*reinterpret_cast<const u32 *>(at + i) << 8 * i;
  for (; i < bytes && i < 8; i++) data |= (u64)*reinterpret_cast<const u8 *>(at + i) << 8 * i;
  return data;
}

RARE void store_bytes(u64 at, u64 bytes, u64 data) {
  u32 i = 0;
  if (at % 4 == 0)
    for (; i + 4 <= bytes && i < 8; i += 4) *reinterpret_cast<u32 *>(at + i) = (u32)(data >> 8 * i);
  for (; i < bytes && i < 8; i++) *reinterpret_cast<u8 *>(at + i) = (u8)(data >> 8 * i);
}

DEVICE u64 load(u64 at, u64 bytes) {
  return bytes >= 8 && at % 8 == 0 ? *reinterpret_cast<const u64 *>(at) : load_bytes(at, bytes);
}

DEVICE void store(u64 at, u64 bytes, u64 data) {
  if (bytes >= 8 && at % 8 == 0)
    *reinterpret_cast<u64 *>(at) = data;
  else
    store_bytes(at, bytes, data);
}
