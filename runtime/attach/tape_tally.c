// Compiled by cc; the go command passes over it.
//go:build ignore

#include <string.h>

#include "tape_writer.h"

/** size_class is the least c with bytes <= 4^c. */
static uint32_t size_class(uint64_t bytes) { return bytes <= 1 ? 0 : (bits(bytes - 1) + 1) / 2; }

/** bus_factor is the factor from an operation's bytes to those that cross a rank's link, as in nccl-tests. */
static double bus_factor(uint8_t call, int32_t peer, int32_t rank, int32_t size) {
  double n = size;
  if (size < 2) {
    return 0;
  }
  switch (call) {
  case CARILLON_CALL_ALL_REDUCE:
    return 2 * (n - 1) / n;
  case CARILLON_CALL_ALL_GATHER:
  case CARILLON_CALL_REDUCE_SCATTER:
  case CARILLON_CALL_ALL_TO_ALL:
    return (n - 1) / n;
  case CARILLON_CALL_GATHER:
  case CARILLON_CALL_SCATTER:
    return peer == rank ? (n - 1) / n : 1; // the root's own part isn't sent
  case CARILLON_CALL_BROADCAST:
  case CARILLON_CALL_REDUCE:
  case CARILLON_CALL_SEND:
  case CARILLON_CALL_RECV:
  case CARILLON_CALL_SEND_RECV:
    return 1;
  default:
    return 0;
  }
}

/** enqueues returns whether calls may return once an operation is on a stream, like tape.CommInfo.Enqueues. */
static bool enqueues(const struct tape_info *info) {
  return strncmp(info->engine, "nccl", 4) == 0 || strchr(info->engine, '+') != NULL;
}

/** take_tally finds a matching tally that nobody writes, or begins a new one; TALLY_NONE if there is no room. */
static uint16_t take_tally(const struct tape_info *info, uint8_t call, uint32_t class) {
  struct layout_tallied wanted = {.call = call, .size_class = (uint8_t)class};
  tape_put_text(wanted.name, sizeof wanted.name, info->name);
  tape_put_text(wanted.engine, sizeof wanted.engine, info->engine);
  uint64_t used = tape.changing->tally_head;
  for (uint64_t i = 0; i < used; i++) {
    if (!tape.tallies_taken[i] && memcmp(&tape.tallies[i].tallied, &wanted, sizeof wanted) == 0) {
      tape.tallies_taken[i] = true;
      return (uint16_t)(i + 1);
    }
  }
  if (used >= tape.file.geometry.tallies || used + 1 >= TALLY_NONE) {
    return TALLY_NONE;
  }
  struct layout_tally *next = &tape.tallies[used];
  uint64_t words[sizeof wanted / sizeof(uint64_t)];
  memcpy(words, &wanted, sizeof wanted);
  next->tallied = wanted;
  next->check = tape_check(used, words, sizeof words / sizeof *words);
  tape.tallies_taken[used] = true;
  store_release(&tape.changing->tally_head, used + 1);
  return (uint16_t)(used + 1);
}

void tape_give_tallies(struct tape_comm *comm) {
  for (size_t call = 0; call < TAPE_NUM_OPERATIONS; call++) {
    for (size_t class = 0; class < TAPE_SIZE_CLASSES; class++) {
      uint16_t held = comm->tallies[call][class];
      if (held != 0 && held != TALLY_NONE) {
        tape.tallies_taken[held - 1] = false;
      }
    }
  }
  memset(comm->tallies, 0, sizeof comm->tallies);
  comm->counting = (struct counting){0};
}

void tape_count_as(struct tape_comm *comm, const struct pending *p) {
  uint8_t call = (uint8_t)p->kinds;
  comm->counting = (struct counting){.kinds = p->kinds, .bytes = p->bytes, .peer = p->peer};
  if (call < TAPE_FIRST_OPERATION || call >= TAPE_FIRST_OPERATION + TAPE_NUM_OPERATIONS || comm->closed) {
    return;
  }
  if (!enqueues(&comm->info)) {
    comm->counting.cross = bus_factor(call, p->peer, comm->info.rank, comm->info.size) * (double)p->bytes * 1e3;
  }
  uint32_t class = size_class(p->bytes);
  uint16_t *held = &comm->tallies[call - TAPE_FIRST_OPERATION][class];
  if (*held == 0) {
    pthread_mutex_lock(&tape.lock);
    *held = take_tally(&comm->info, call, class);
    pthread_mutex_unlock(&tape.lock);
  }
  if (*held != TALLY_NONE) {
    comm->counting.tally = &tape.tallies[*held - 1];
  }
}
