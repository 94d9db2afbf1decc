/*
 * The tokens that NCCL is given for pointers, and the events that are open. Slots are taken in turn, so that each rests
 * as long as possible: what an event was is known for a while after its stop, to children that come later and to
 * whoever stops it again. No lock.
 */
#ifndef CARILLON_PROFILER_SLOT_H
#define CARILLON_PROFILER_SLOT_H

#include <stddef.h>

#include "profiler.h"

/*
 * A token: bits 48 to 63 are the process's stamp, bit 47 tells events from communicators, bits 14 to 46 are the
 * generation, which is odd, and the rest is the index. None is 0.
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

/* Gives the process its stamp. A forked child has another: its parent's communicators are none of its own. */
void token_stamp_process(void);

static inline uintptr_t token_make(uint64_t kind, uint64_t generation, size_t index) {
  return atomic_load_explicit(&token_stamp, memory_order_relaxed) | kind |
         (generation & TOKEN_GENERATIONS) << TOKEN_INDEX_BITS | index;
}

/* The index that a token of that kind has, or -1 if it isn't one of ours. */
static inline ptrdiff_t token_index(uintptr_t t, uint64_t kind, size_t size) {
  const uint64_t high = UINT64_C(0xffff) << 48 | TOKEN_EVENT, odd = UINT64_C(1) << TOKEN_INDEX_BITS;
  const uint64_t ours = atomic_load_explicit(&token_stamp, memory_order_relaxed) | kind;
  const size_t index = t & (odd - 1);
  return t != 0 && (t & high) == ours && (t & odd) != 0 && index < size ? (ptrdiff_t)index : -1;
}

static inline uint64_t token_generation(uintptr_t t) { return t >> TOKEN_INDEX_BITS & TOKEN_GENERATIONS; }

/* An event. Its slot is its starter's until its token is known. What it says stays until another takes its slot. */
struct slot {
  _Atomic uint64_t generation; /* odd while it is open */
  _Atomic int64_t began;       /* at which turn it began */
  _Atomic uintptr_t comm;      /* its token */
  _Atomic uint32_t type;
  _Atomic uint32_t beside;                   /* which of the other plug-ins were told of it */
  _Atomic(void *) handle[PROFILER_NEXT];     /* theirs */
  _Atomic uintptr_t joined[PROFILER_JOINED]; /* of a group: the communicators that joined it */
  _Atomic uintptr_t group;                   /* of others: the group that it was called in; 0: none */
  _Atomic uint64_t operation;                /* that it began on the tape; 0: none */
  _Atomic uint32_t look, part;               /* that it belongs to (profiler_depth.h), and as what; 0: none */
};

/* What an event was. */
struct slot_contents {
  uintptr_t comm, joined[PROFILER_JOINED];
  uint64_t operation;
  uint32_t type, beside, look, part;
  void *handle[PROFILER_NEXT];
};

/* How old a token of an event is: 0 it is open, 1 it was the last one in its slot, more: there was another since; -1
   it was none ever. */
int64_t slot_age(uintptr_t token, struct slot **slot);

/* The event of a token that is open, or was stopped and not followed by another; NULL if there is none. */
struct slot *slot_of(uintptr_t token);

/* Takes a slot, and answers its token; 0: there is none. An event below a task, of which stops go missing, makes room
   for others when all slots had several turns since it began. */
uintptr_t slot_take(struct slot **slot, uintptr_t comm, uint64_t type);

/* Gives a slot back, and says what was in it. False if somebody else did. */
bool slot_give(struct slot *, uintptr_t token, struct slot_contents *);

/* Gives back all slots of a communicator. */
void slot_reclaim(uintptr_t comm);

#endif
