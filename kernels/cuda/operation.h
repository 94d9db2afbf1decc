// What every kernel does besides moving data: the epoch of the operation, waiting for other ranks, and what is written
// for those who look on.
#pragma once

#include "platform.h"

// An operation has the number that comes next on each rank: its epoch. It lives in the GPU's memory, so that a CUDA
// graph may be replayed. Every word by which a rank tells another that something is there is the epoch's last 24 bits
// and the call's signature.
//
// Two halves of a mailbox suffice, if every rank hears from every other one in every operation: a rank that writes to a
// half for epoch e has ended e-1, so its peer has entered e-1, so it has ended e-2, which read that half.
struct Operation {
  u32 epoch, flag;
  u64 half; // bytes of a mailbox before the half of this operation
  u32 ranks, others; // how many, and those that are not this one, as bits
  bool left; // it has given up, and does nothing more
};

// A clean half is needed before an old epoch's flag can be taken for a new one's. A rank clears the half that the next
// operation uses before it tells anybody that it has entered this one.
constexpr u32 epochs_until_clean = 1 << 20;

constexpr u64 first_patience = 50000, longest_patience = 400000; // cycles: 30 and 220 microseconds on an H200

// A word is as large as a packet, and written like one.
DEVICE void store_word(u64 at, u32 epoch, u32 phase, u32 peer, u32 blocks, u64 time = now()) {
  store_packet(at, {epoch, phase | peer << 8 | blocks << 16, (u32)time, (u32)(time >> 32)});
}

DEVICE u64 words_of(const Grid &g, const carillon_args &a) { return a.words + g.block * sizeof(carillon_words); }

// last_epoch is that of the operation before. Ask for it, then for what is to be sent, and then enter: both are under
// way at once.
DEVICE u32 last_epoch(const Grid &g, const carillon_args &a) { return load_relaxed(a.epochs + 4 * g.block); }

DEVICE Operation enter(const Grid &g, const carillon_args &a, u32 last, u32 ranks) {
  Operation op = {};
  op.ranks = ranks;
  op.others = ((1u << ranks) - 1) & ~(1u << a.rank);
  op.epoch = last + 1;
  op.flag = op.epoch << 8 | a.signature;
  op.half = op.epoch & 1 ? a.half : 0;
  if ((op.epoch + 1) % epochs_until_clean < 2) {
    u64 begin = a.mailbox[0] + (op.half ? 0 : a.half);
    for (u64 i = (u64)(g.block * g.threads + g.thread) * carillon_packet; i < a.half;
         i += (u64)g.blocks * g.threads * carillon_packet)
      store_packet(begin + i, {0, 0, 0, 0});
    fence();
    g.sync();
  }
  return op;
}

// leave is called by all threads. Of the words of epochs a block writes its own and those of blocks that this launch
// doesn't have.
DEVICE void leave(const Grid &g, const carillon_args &a, const Operation &op) {
  const u64 time = now();
  g.sync(); // all threads have read the epoch
  if (op.left) return;
  for (u32 b = g.block + g.thread * g.blocks; b < carillon_max_blocks; b += g.threads * g.blocks)
    *reinterpret_cast<u32 *>(a.epochs + 4 * b) = op.epoch;
  if (g.thread == 0 && a.words) store_word(words_of(g, a), op.epoch, carillon_done, 0, g.blocks, time);
}

// Patience is that of a thread that waits: when it last looked around, for how many cycles it waits before it does so
// again, what it told, and whether it is at an end (carillon_mismatch or carillon_aborted).
struct Patience {
  u64 since;
  u32 cycles;
  u16 told;
  u16 end;
};

// look_around is where a thread gets to that has waited long: it tells once what for, and sees whether to give up. This
// is off the fast path, on which nothing reads the host's memory.
RARE Patience look_around(Patience p, u64 words, u64 abort, u32 epoch, u32 phase, u32 peer, u32 blocks, u32 thread,
                          bool mismatch) {
  const u64 t = cycles();
  if (p.cycles == 0) p = {t, first_patience, carillon_done, carillon_done};
  if (t - p.since < p.cycles) return p;
  p.since = t;
  if (p.cycles < longest_patience) p.cycles *= 2;
  if (abort && load_relaxed(abort))
    p.end = carillon_aborted;
  else if (mismatch)
    p.end = carillon_mismatch;
  if (p.end) phase = p.end;
  const u32 news = phase | (peer + 1) << 8;
  if (words && p.told != news && (p.end || thread == 0)) {
    p.told = (u16)news;
    store_word(words + sizeof(carillon_word), epoch, phase, peer, blocks);
  }
  return p;
}

// wait polls until all is there that it waits for, and is false if this thread must give up. Poll gives op's flag, or
// another one that it sees and the rank that it is of.
template <class Poll> DEVICE bool wait(const Grid &g, const carillon_args &a, Operation &op, u32 phase, Poll &&poll) {
  Patience p = {};
  u32 peer = 0, seen;
  for (u32 turns = 1; (seen = poll(peer)) != op.flag; turns++) {
    give_way();
    if (turns % 32) continue;
    const bool mismatch = (seen ^ op.flag) >> 8 == 0 && seen & 0xff; // cleared memory has no signature
    p = look_around(p, a.words ? words_of(g, a) : 0, a.abort, op.epoch, phase, peer, g.blocks, g.thread, mismatch);
    if (p.end) {
      op.left = true;
      return false;
    }
  }
  if (p.told) store_word(words_of(g, a) + sizeof(carillon_word), op.epoch, carillon_done, peer, g.blocks);
  return true;
}

// of is an entry of an array of the parameter, which only constants may index.
DEVICE u64 of(const u64 (&array)[carillon_max_ranks], u32 index) {
  u64 entry = array[0];
  UNROLL
  for (u32 i = 1; i < carillon_max_ranks; i++)
    if (i == index) entry = array[i];
  return entry;
}

// behind is the rank that comes k ranks after this one.
DEVICE u32 behind(const carillon_args &a, const Operation &op, u32 k) {
  return a.rank + k < op.ranks ? a.rank + k : a.rank + k - op.ranks;
}

// load and store are those of up to 8 bytes of a buffer, which may begin anywhere and end before.
RARE u64 load_bytes(u64 at, u64 bytes) {
  u64 data = 0;
  for (u32 i = 0; i < bytes && i < 8; i++) data |= (u64)reinterpret_cast<const u8 *>(at)[i] << 8 * i;
  return data;
}

RARE void store_bytes(u64 at, u64 bytes, u64 data) {
  for (u32 i = 0; i < bytes && i < 8; i++) reinterpret_cast<u8 *>(at)[i] = (u8)(data >> 8 * i);
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
