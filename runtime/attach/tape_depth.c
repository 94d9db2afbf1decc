// Compiled by cc; the go command passes over it.
//go:build ignore

#include "tape_writer.h"

static struct tape_look look_of(const struct pending *p, uint64_t launched) {
  return (struct tape_look){p->number, launched, p->bytes, p->kinds, p->peer, p->start};
}

bool tape_look_at(const struct tape_comm *comm, struct tape_look *look) {
  if (!tape_on(comm) || comm->marking.launched == 0) {
    return false;
  }
  *look = look_of(&comm->marking.op, comm->marking.launched);
  return true;
}

bool tape_look_at_last(struct tape_comm *comm, struct tape_look *look) {
  if (!tape_on(comm) || comm->op.launched == comm->op.completed) {
    return false;
  }
  *look = look_of(tape_last(comm), comm->op.launched);
  return true;
}

static struct pending pending_of(const struct tape_look *look) {
  return (struct pending){
      .number = look->number, .start = look->start, .kinds = look->kinds, .bytes = look->bytes, .peer = look->peer,
  };
}

void tape_waits(struct tape_comm *comm, const struct tape_look *look, uint8_t phase, int32_t rank, int64_t since) {
  if (!tape_mark_has(comm)) {
    return;
  }
  uint64_t *to = tape_marked_at(comm) + (size_t)TAPE_WAIT_AT * TAPE_RECORD_WORDS;
  store(to, (uint32_t)(to[0] >> 32) + 1, TAPE_KIND_WAIT, (uint64_t)since, look->number,
        look->kinds | (uint64_t)phase << 32, pack32(look->peer, rank), look->bytes, look->launched, comm->comm);
}

void tape_proxied(struct tape_comm *comm, const struct tape_look *look, const struct tape_proxied *sent) {
  if (tape_on(comm)) {
    struct pending p = pending_of(look);
    p.peer = sent->peer;
    p.bytes = sent->bytes;
    p.start = sent->start;
    tape_put(comm, &p, sent->end, TAPE_STAGE_PROXIED, sent->waited, comm->info.rank);
  }
}

void tape_kernel(struct tape_comm *comm, const struct tape_look *look, uint8_t phase, int64_t start, int64_t end) {
  if (tape_on(comm)) {
    struct pending p = pending_of(look);
    p.start = start;
    tape_put(comm, &p, end, TAPE_STAGE_KERNEL, phase, -1);
  }
}
