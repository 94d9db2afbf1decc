//go:build ignore

#include "profiler_slot.h"

#include <unistd.h>

#include "tape.h"

static struct slot slots[PROFILER_SLOTS];
static _Atomic int64_t turns;
_Atomic uint64_t token_stamp;
_Atomic int32_t token_process;

void token_stamp_process(void) {
  const int32_t pid = (int32_t)getpid();
  if (atomic_load_explicit(&token_process, memory_order_relaxed) == pid) {
    return;
  }
  const uint64_t mixed = ((uint64_t)pid ^ (uint64_t)tape_now()) * UINT64_C(0x9E3779B97F4A7C15);
  atomic_store(&token_stamp, (mixed >> 48 | 1) << 48);
  atomic_store(&token_process, pid);
}

int64_t slot_age(uintptr_t token, struct slot **slot) {
  const ptrdiff_t i = token_index(token, TOKEN_EVENT, PROFILER_SLOTS);
  if (i < 0) {
    return -1;
  }
  *slot = &slots[i];
  const uint64_t now = atomic_load_explicit(&slots[i].generation, memory_order_acquire) & TOKEN_GENERATIONS;
  return now >= token_generation(token) ? (int64_t)(now - token_generation(token)) : -1;
}

struct slot *slot_of(uintptr_t token) {
  struct slot *s = NULL;
  const int64_t age = slot_age(token, &s);
  return age == 0 || age == 1 ? s : NULL;
}

/* Closes a slot of that generation. First it sets began to a value that never looks old: the next owner may be delayed
   before it sets its own. */
static bool shut(struct slot *s, uint64_t generation) {
  atomic_store_explicit(&s->began, INT64_MAX / 2, memory_order_relaxed);
  return atomic_compare_exchange_strong_explicit(&s->generation, &generation, generation + 1, memory_order_acq_rel,
                                                 memory_order_relaxed);
}

/* Whether an event is below a task and its stop has been missing for long. */
static bool forgotten(struct slot *s, int64_t turn) {
  enum { LAPS = 4 };
  const uint32_t below =
      PROFILER_PROXY_OP | PROFILER_PROXY_STEP | PROFILER_PROXY_CTRL | PROFILER_KERNEL_CH | PROFILER_NET_PLUGIN;
  return (atomic_load_explicit(&s->type, memory_order_relaxed) & below) != 0 &&
         turn - atomic_load_explicit(&s->began, memory_order_relaxed) >= (int64_t)LAPS * PROFILER_SLOTS;
}

uintptr_t slot_take(struct slot **slot, uintptr_t comm, uint64_t type) {
  enum { PROBES = 256 };
  for (int i = 0; i < PROBES; i++) {
    const int64_t turn = atomic_fetch_add_explicit(&turns, 1, memory_order_relaxed);
    const size_t index = (size_t)turn % PROFILER_SLOTS;
    struct slot *s = &slots[index];
    uint64_t g = atomic_load_explicit(&s->generation, memory_order_acquire);
    if ((g & 1) != 0) {
      if (!forgotten(s, turn) || !shut(s, g++)) {
        continue;
      }
      profiler_count(TAPE_UNEXPECTED_NEVER_STOPPED);
    }
    if (!atomic_compare_exchange_strong_explicit(&s->generation, &g, g + 1, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
      continue;
    }
    atomic_store_explicit(&s->comm, comm, memory_order_relaxed);
    atomic_store_explicit(&s->type, (uint32_t)type, memory_order_relaxed);
    atomic_store_explicit(&s->beside, 0, memory_order_relaxed);
    atomic_store_explicit(&s->group, 0, memory_order_relaxed);
    atomic_store_explicit(&s->operation, 0, memory_order_relaxed);
    atomic_store_explicit(&s->look, 0, memory_order_relaxed);
    atomic_store_explicit(&s->began, turn, memory_order_release);
    *slot = s;
    return token_make(TOKEN_EVENT, g + 1, index);
  }
  profiler_count(TAPE_UNEXPECTED_NO_ROOM);
  return 0;
}

bool slot_give(struct slot *s, uintptr_t token, struct slot_contents *was) {
  /* These values are the event's if the slot still has its generation afterwards. */
  was->comm = atomic_load_explicit(&s->comm, memory_order_relaxed);
  was->operation = atomic_load_explicit(&s->operation, memory_order_relaxed);
  was->look = atomic_load_explicit(&s->look, memory_order_acquire);
  was->part = atomic_load_explicit(&s->part, memory_order_relaxed);
  was->type = atomic_load_explicit(&s->type, memory_order_relaxed);
  was->beside = atomic_load_explicit(&s->beside, memory_order_acquire);
  for (int i = 0; was->beside >> i != 0; i++) {
    was->handle[i] = atomic_load_explicit(&s->handle[i], memory_order_relaxed);
  }
  for (int i = 0; was->type == PROFILER_GROUP_API && i < PROFILER_JOINED; i++) {
    was->joined[i] = atomic_load_explicit(&s->joined[i], memory_order_relaxed);
  }
  const uint64_t g = atomic_load_explicit(&s->generation, memory_order_acquire);
  return (g & TOKEN_GENERATIONS) == token_generation(token) && shut(s, g);
}

void slot_reclaim(uintptr_t comm) {
  for (size_t i = 0; i < PROFILER_SLOTS; i++) {
    struct slot *s = &slots[i];
    const uint64_t g = atomic_load_explicit(&s->generation, memory_order_acquire);
    if ((g & 1) != 0 && atomic_load_explicit(&s->comm, memory_order_relaxed) == comm && shut(s, g)) {
      profiler_count(TAPE_UNEXPECTED_NEVER_STOPPED);
    }
  }
}
