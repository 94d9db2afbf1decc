//go:build ignore

#include "profiler_depth.h"

#include <string.h>

#include "../../lifecycle/carillon_lifecycle.h"

/* States of a proxy step, of a kernel channel and of a kernel phase, in all versions. */
enum { SEND_WAIT = 9, RECV_WAIT = 10, SEND_PEER_WAIT = 20, KERNEL_CH_STOP = 22, KERNEL_PHASE_STOP = 31 };

/* The first phase of a kernel channel, in which it waits for the kernels of other ranks. */
enum { INITIAL_SYNC = 0 };

/* What a step waits for: an index of depth_flow.steps, plus 1; 0: the device, or nothing. */
enum wait { NOTHING, CREDIT, NETWORK, DATA };

/* A step that waits for data may be waiting for the other rank's device as well as for the network, so its phase stays
   "stream". */
static const uint8_t phases[] = {TAPE_PHASE_NONE, TAPE_PHASE_CREDIT, TAPE_PHASE_NETWORK, TAPE_PHASE_STREAM};

/* The bits of slot.part: a flow's index plus 1, and what its step waits for; or PART_SYNC for a kernel's initial
   sync. */
enum { PART_FLOW = 0xff, PART_WAIT = 8, PART_SYNC = 1 << 16 };

static enum wait wait_in(int state) {
  return state == SEND_PEER_WAIT ? CREDIT : state == SEND_WAIT ? NETWORK : state == RECV_WAIT ? DATA : NOTHING;
}

static uint32_t part_of(const struct slot *s) { return atomic_load_explicit(&s->part, memory_order_relaxed); }

static struct depth_flow *flow_of(struct depth *d, uint32_t part) {
  const uint32_t i = (part & PART_FLOW) - 1;
  return i < d->flows ? &d->flow[i] : NULL;
}

/* Shows on the tape which rank the operation's data waits for: the peer of the flow that has been idle for longest.
   Waits for the network come first: others may be their consequence. */
static void show(struct depth *d) {
  int32_t peer = -1;
  uint8_t phase = TAPE_PHASE_NONE;
  int64_t since = 0;
  enum wait most = NOTHING;
  for (uint32_t i = 0; i < d->flows; i++) {
    const struct depth_flow *f = &d->flow[i];
    const enum wait w = f->steps[NETWORK - 1] ? NETWORK : f->steps[CREDIT - 1] ? CREDIT : f->steps[DATA - 1] ? DATA : 0;
    const bool first = (w == NETWORK) != (most == NETWORK) ? w == NETWORK : f->last < since;
    if (w != NOTHING && (peer < 0 || first)) {
      most = w;
      peer = f->peer;
      phase = phases[w];
      since = f->last;
    }
  }
  if (peer != d->shown.peer || phase != d->shown.phase || since != d->shown.since) {
    d->shown.peer = peer;
    d->shown.phase = phase;
    d->shown.since = since;
    tape_waits(d->tape, &d->of, phase, peer, since);
  }
}

/* Moves a step of a flow from one wait to another. */
static void wait_for(struct depth_flow *f, enum wait was, enum wait is) {
  const int64_t now = tape_now();
  if (was != NOTHING) {
    f->steps[was - 1]--;
    if (now - f->last > f->longest) {
      f->longest = now - f->last;
      f->waited = phases[was];
    }
  }
  if (is != NOTHING) {
    f->steps[is - 1]++;
  }
  f->last = now;
}

uint32_t depth_of(struct depth *d, const struct profiler_event *e) {
  const uint32_t look = atomic_load_explicit(&d->look, memory_order_acquire);
  const struct slot *parent;
  switch (look == 0 ? 0 : e->type) {
  case PROFILER_COLL:
  case PROFILER_P2P:
    return atomic_load_explicit(&d->asked, memory_order_relaxed) ? look : 0;
  case PROFILER_PROXY_OP:
  case PROFILER_PROXY_STEP:
  case PROFILER_KERNEL_CH:
  case PROFILER_KERNEL_PHASE:
    parent = slot_of((uintptr_t)e->parentObj);
    return parent != NULL && atomic_load_explicit(&parent->look, memory_order_relaxed) == look ? look : 0;
  default:
    return 0;
  }
}

/* The slot part of a proxy operation: the flow of its peer and direction, added if there is room; 0: there is none. */
static uint32_t join(struct depth *d, int32_t peer, bool sends) {
  uint32_t i = 0;
  while (i < d->flows && (d->flow[i].peer != peer || d->flow[i].sends != sends)) {
    i++;
  }
  if (i == DEPTH_FLOWS) {
    return 0;
  }
  if (i == d->flows) {
    const int64_t now = tape_now();
    d->flow[d->flows++] = (struct depth_flow){.peer = peer, .sends = sends, .start = now, .last = now};
  }
  return i + 1;
}

/* Takes the lock, if the given look is the current one. */
static bool enter(struct depth *d, uint32_t look) {
  pthread_mutex_lock(&d->lock);
  if (look != 0 && look == atomic_load_explicit(&d->look, memory_order_relaxed)) {
    return true;
  }
  pthread_mutex_unlock(&d->lock);
  return false;
}

void depth_start(struct depth *d, struct slot *s, uint32_t look, const struct profiler_event *e) {
  if (!enter(d, look)) {
    return;
  }
  uint32_t part = 0;
  if (e->type == PROFILER_PROXY_OP) {
    part = join(d, e->proxyOp.peer, e->proxyOp.isSend != 0);
  } else if (e->type == PROFILER_PROXY_STEP) {
    const struct slot *parent = slot_of((uintptr_t)e->parentObj);
    part = parent != NULL ? part_of(parent) & PART_FLOW : 0;
  } else if (e->type == PROFILER_KERNEL_CH) {
    const uint64_t at = e->kernelCh.pTimer;
    d->kernel.open++;
    d->kernel.first = d->kernel.first == 0 || at < d->kernel.first ? at : d->kernel.first;
    d->kernel.start = d->kernel.start != 0 ? d->kernel.start : tape_now();
  } else if (e->type == PROFILER_KERNEL_PHASE && e->kernelPhase.phaseId == INITIAL_SYNC) {
    part = PART_SYNC;
  }
  atomic_store_explicit(&s->part, part, memory_order_relaxed);
  atomic_store_explicit(&s->look, look, memory_order_release);
  pthread_mutex_unlock(&d->lock);
}

void depth_state(struct depth *d, struct slot *s, int state, const union profiler_args *args) {
  if (!enter(d, atomic_load_explicit(&s->look, memory_order_acquire))) {
    return;
  }
  const uint32_t type = atomic_load_explicit(&s->type, memory_order_relaxed), part = part_of(s);
  struct depth_flow *f = flow_of(d, part);
  const uint64_t told = args == NULL ? 0 : args->kernelCh.pTimer; /* or transSize; up to version 2 there is neither */
  if (type == PROFILER_KERNEL_CH && state == KERNEL_CH_STOP) {
    d->kernel.last = told > d->kernel.last ? told : d->kernel.last;
  } else if (part == PART_SYNC && state == KERNEL_PHASE_STOP) {
    d->kernel.met = told > d->kernel.met ? told : d->kernel.met;
  } else if (type == PROFILER_PROXY_STEP && f != NULL) {
    const enum wait is = wait_in(state);
    if (state == SEND_WAIT) {
      f->bytes += told;
    }
    wait_for(f, part >> PART_WAIT, is);
    atomic_store_explicit(&s->part, (part & PART_FLOW) | (uint32_t)is << PART_WAIT, memory_order_relaxed);
    show(d);
  }
  pthread_mutex_unlock(&d->lock);
}

void depth_stop(struct depth *d, const struct slot_contents *was) {
  if (!enter(d, was->look)) {
    return;
  }
  struct depth_flow *f = flow_of(d, was->part);
  if (was->type == PROFILER_KERNEL_CH && d->kernel.open > 0) {
    d->kernel.open--;
    d->kernel.end = tape_now();
  } else if (was->type == PROFILER_PROXY_STEP && f != NULL) {
    wait_for(f, was->part >> PART_WAIT, NOTHING);
    show(d);
  }
  pthread_mutex_unlock(&d->lock);
}

/* Writes to the tape what was seen. */
static void tell(struct depth *d) {
  for (uint32_t i = 0; i < d->flows; i++) {
    const struct depth_flow *f = &d->flow[i];
    if (f->sends) {
      tape_proxied(d->tape, &d->of, &(struct tape_proxied){f->peer, f->bytes, f->start, f->last, f->waited});
    }
  }
  if (d->kernel.end != 0 && d->kernel.open == 0) {
    const int64_t took = (int64_t)(d->kernel.last - d->kernel.first); /* by the device; NCCL reported it a little
                                                                         later */
    const int64_t start = d->kernel.first != 0 && took > 0 ? d->kernel.end - took : d->kernel.start;
    tape_kernel(d->tape, &d->of, TAPE_PHASE_NONE, start, d->kernel.end);
    if (d->kernel.first != 0 && d->kernel.met > d->kernel.first) {
      const int64_t met = (int64_t)(d->kernel.met - d->kernel.first);
      tape_kernel(d->tape, &d->of, TAPE_PHASE_AGREE, start, start + (met < took ? met : took));
    }
  }
  tape_waits(d->tape, &d->of, TAPE_PHASE_NONE, -1, 0);
}

bool depth_done(struct depth *d) {
  pthread_mutex_lock(&d->lock);
  bool done = d->kernel.end != 0 && d->kernel.open == 0;
  for (uint32_t i = 0; i < d->flows; i++) {
    const uint32_t *steps = d->flow[i].steps;
    done = done && steps[0] + steps[1] + steps[2] == 0;
  }
  pthread_mutex_unlock(&d->lock);
  return done;
}

void depth_close(struct depth *d) {
  pthread_mutex_lock(&d->lock);
  if (atomic_load_explicit(&d->look, memory_order_relaxed) != 0) {
    tell(d);
    atomic_store_explicit(&d->look, 0, memory_order_release);
    d->tape = NULL;
  }
  pthread_mutex_unlock(&d->lock);
}

void depth_open(struct depth *d, struct tape_comm *tape, const struct tape_look *of) {
  depth_close(d);
  pthread_mutex_lock(&d->lock);
  d->tape = tape;
  d->of = *of;
  d->flows = 0;
  memset(&d->kernel, 0, sizeof d->kernel);
  d->shown.peer = -1;
  d->shown.phase = TAPE_PHASE_NONE;
  d->shown.since = 0;
  d->number += d->number == UINT32_MAX ? 2 : 1; /* never 0 */
  atomic_store_explicit(&d->look, d->number, memory_order_release);
  pthread_mutex_unlock(&d->lock);
}
