/*
 * The tokens that NCCL gets instead of pointers, and the events that are open. Slots are taken in turn, so that each
 * rests as long as possible after use: for a while after its stop, an event is still known to children that come later,
 * and to a second stop. Takes no lock.
 */
#ifndef CARILLON_PROFILER_SLOT_H
#define CARILLON_PROFILER_SLOT_H

#include <stddef.h>

#include "profiler.h"

/*
 * A token: bits 48 to 63 are the process's stamp, bit 47 is set for events and clear for communicators, bits 14 to 46
 * are the generation, which is odd, and the rest is the index. No token is 0.
 */
enum { TOKEN_INDEX_BITS = 14, TOKEN_GENERATION_BITS = 33 };
#define TOKEN_GENERATIONS ((UINT64_C(1) << TOKEN_GENERATION_BITS) - 1)
#define TOKEN_COMM UINT64_C(0)
#define TOKEN_EVENT (UINT64_C(1) << 47)
_Static_assert(PROFILER_SLOTS <= 1 << TOKEN_INDEX_BITS, "tokens have room for an event's index");
_Static_assert(PROFILER_COMMS <= 1 << TOKEN_INDEX_BITS, "and for a communicator's");
_Static_assert(sizeof(uintptr_t) == 8, "tokens are 64 bits");

extern _Atomic uint64_t token_stamp;
extern _Atomic int32_t token_process;

/* Gives the process its stamp. A forked child gets another one, so the tokens of its parent are invalid in it. */
void token_stamp_process(void);

static inline uintptr_t token_make(uint64_t kind, uint64_t generation, size_t index) {
  return atomic_load_explicit(&token_stamp, memory_order_relaxed) | kind |
         (generation & TOKEN_GENERATIONS) << TOKEN_INDEX_BITS | index;
}

/* The index of a token of that kind, or -1 if it isn't one of ours. */
static inline ptrdiff_t token_index(uintptr_t t, uint64_t kind, size_t size) {
  const uint64_t high = UINT64_C(0xffff) << 48 | TOKEN_EVENT, odd = UINT64_C(1) << TOKEN_INDEX_BITS;
  const uint64_t ours = atomic_load_explicit(&token_stamp, memory_order_relaxed) | kind;
  const size_t index = t & (odd - 1);
  return t != 0 && (t & high) == ours && (t & odd) != 0 && index < size ? (ptrdiff_t)index : -1;
}

static inline uint64_t token_generation(uintptr_t t) { return t >> TOKEN_INDEX_BITS & TOKEN_GENERATIONS; }

/* An event. The slot belongs to the thread that starts it until its token is known. Its fields stay until another event
   takes the slot. */
struct slot {
  _Atomic uint64_t generation; /* odd while it is open */
  _Atomic int64_t began;       /* the turn at which it began */
  _Atomic uintptr_t comm;      /* the communicator's token */
  _Atomic uint32_t type;
  _Atomic uint32_t beside;                   /* a bit for each of the other plug-ins that was told of it */
  _Atomic(void *) handle[PROFILER_NEXT];     /* their handles of it */
  _Atomic uintptr_t joined[PROFILER_JOINED]; /* of a group: the communicators that joined it */
  _Atomic uintptr_t group;                   /* of other events: the group that they were called in; 0: none */
  _Atomic uint64_t operation;                /* the operation that it began on the tape; 0: none */
  _Atomic uint32_t look, part;               /* the look that it belongs to (profiler_depth.h), and as which part; 0:
                                                none */
};

/* The contents of an event's slot. */
struct slot_contents {
  uintptr_t comm, joined[PROFILER_JOINED];
  uint64_t operation;
  uint32_t type, beside, look, part;
  void *handle[PROFILER_NEXT];
};

/* The age of an event's token: 0: the event is open; 1: it was the last one in its slot; more: another one has used the
   slot since; -1: there was no such event. */
int64_t slot_age(uintptr_t token, struct slot **slot);

/* The slot of a token's event, if that is open, or was stopped and no other event has taken the slot since; else
   NULL. */
struct slot *slot_of(uintptr_t token);

/* Takes a slot and returns its token; 0: there is none. If the stop of an event below a task is missing, its slot is
   reused after all slots have had several turns since it began. */
uintptr_t slot_take(struct slot **slot, uintptr_t comm, uint64_t type);

/* Gives a slot back, and copies what was in it. False if another thread has already done so. */
bool slot_give(struct slot *, uintptr_t token, struct slot_contents *);

/* Gives back all slots of a communicator. */
void slot_reclaim(uintptr_t comm);

#endif
