/* Code generated from package lifecycle by go generate; DO NOT EDIT. */

/**
 * @file
 * The rules of a communicator's life, for C and C++: the tables of Go's package lifecycle, number for number.
 * table.md shows the same tables for reading.
 *
 * A call is what a user does to a communicator; an event is what the runtime makes happen. carillon_lifecycle_next()
 * returns what a call leads to, and carillon_lifecycle_after() what an event leads to. Both are pure: the caller keeps
 * the state, and serializes changes to it. On a non-blocking communicator, return CARILLON_CODE_IN_PROGRESS instead of
 * CARILLON_CODE_INITIALIZING.
 *
 * Numbers and names are stable. Everything here is constant or inline: there is nothing to link, and the only standard
 * header needed is <stdint.h>.
 */
#ifndef CARILLON_LIFECYCLE_H
#define CARILLON_LIFECYCLE_H

#include <stdint.h>

/** Where a communicator is in its life. */
enum carillon_state {
  CARILLON_STATE_NONE = 0,
  CARILLON_STATE_INITIALIZING = 1, /**< its ranks are finding each other */
  CARILLON_STATE_READY = 2, /**< every call but Init is legal */
  CARILLON_STATE_FINALIZING = 3, /**< no new operations are accepted; those in flight continue */
  CARILLON_STATE_FINALIZED = 4, /**< nothing is in flight; waits for Destroy */
  CARILLON_STATE_DESTROYING = 5, /**< Destroy waits for the operations in flight; only Abort is legal */
  CARILLON_STATE_DESTROYED = 6, /**< Destroy has ended */
  CARILLON_STATE_ABORTING = 7, /**< Abort is cancelling the operations in flight; no call is legal */
  CARILLON_STATE_ABORTED = 8, /**< Abort has ended */
  CARILLON_STATE_FAILED = 9, /**< broken by an event; see Life.Cause */
  CARILLON_STATE_REVOKED = 10, /**< operations were cancelled; it can be split, shrunk or destroyed */
};

/** Holds an enum carillon_state. */
typedef uint8_t carillon_state_t;

/** Something that a user does to a communicator. */
enum carillon_call {
  CARILLON_CALL_NONE = 0,
  CARILLON_CALL_INIT_RANK = 1,
  CARILLON_CALL_INIT_RANK_CONFIG = 2,
  CARILLON_CALL_INIT_RANK_SCALABLE = 3,
  CARILLON_CALL_INIT_ALL = 4,
  CARILLON_CALL_SPLIT = 5,
  CARILLON_CALL_SHRINK = 6,
  CARILLON_CALL_GROW = 7,
  CARILLON_CALL_REVOKE = 8,
  CARILLON_CALL_FINALIZE = 9,
  CARILLON_CALL_DESTROY = 10,
  CARILLON_CALL_ABORT = 11,
  CARILLON_CALL_ASYNC_ERROR = 12,
  CARILLON_CALL_WAIT = 13,
  CARILLON_CALL_GROUP_START = 14,
  CARILLON_CALL_GROUP_END = 15,
  CARILLON_CALL_ALL_REDUCE = 16,
  CARILLON_CALL_BROADCAST = 17,
  CARILLON_CALL_REDUCE = 18,
  CARILLON_CALL_ALL_GATHER = 19,
  CARILLON_CALL_REDUCE_SCATTER = 20,
  CARILLON_CALL_ALL_TO_ALL = 21,
  CARILLON_CALL_GATHER = 22,
  CARILLON_CALL_SCATTER = 23,
  CARILLON_CALL_SEND = 24,
  CARILLON_CALL_RECV = 25,
  CARILLON_CALL_SEND_RECV = 26,
  CARILLON_CALL_BARRIER = 27,
};

/** Holds an enum carillon_call. */
typedef uint8_t carillon_call_t;

/** Something that the runtime makes happen to a communicator. */
enum carillon_event {
  CARILLON_EVENT_NONE = 0,
  CARILLON_EVENT_INIT_DONE = 1,
  CARILLON_EVENT_INIT_FAILED = 2,
  CARILLON_EVENT_FINALIZE_DONE = 3,
  CARILLON_EVENT_DESTROY_DONE = 4,
  CARILLON_EVENT_ABORT_DONE = 5,
  CARILLON_EVENT_ASYNC_FAILURE = 6, /**< a peer died, a transport broke, an operation was abandoned */
};

/** Holds an enum carillon_event. */
typedef uint8_t carillon_event_t;

/** The stable number of an error. */
enum carillon_code {
  CARILLON_CODE_OK = 0,
  CARILLON_CODE_IN_PROGRESS = 1, /**< a non-blocking communicator has not finished its last call */
  CARILLON_CODE_INVALID_ARGUMENT = 100, /**< a value that is out of range */
  CARILLON_CODE_INVALID_USAGE = 101, /**< a call that is not allowed here */
  CARILLON_CODE_INITIALIZING = 102, /**< too early: the communicator is not ready yet */
  CARILLON_CODE_FINALIZED = 103, /**< used after Finalize */
  CARILLON_CODE_DESTROYED = 104, /**< used or destroyed after Destroy */
  CARILLON_CODE_ABORTED = 105, /**< used after Abort */
  CARILLON_CODE_FAILED = 106, /**< used after a failure: only Shrink, Revoke, Abort and Destroy are legal */
  CARILLON_CODE_REVOKED = 107, /**< used after Revoke */
  CARILLON_CODE_LEAKED = 108, /**< never destroyed or aborted */
  CARILLON_CODE_UNFINISHED = 109, /**< destroyed with operations in flight that did not end in time */
  CARILLON_CODE_RANK_DEAD = 200, /**< the peer's process ended */
  CARILLON_CODE_NOT_JOINED = 201, /**< the peer never arrived at a rendezvous */
  CARILLON_CODE_MISMATCH = 202, /**< the ranks made different calls */
  CARILLON_CODE_ABANDONED = 203, /**< the peer gave up an operation: its context ended */
  CARILLON_CODE_PEER_ABORTED = 204, /**< the peer aborted or destroyed the communicator */
  CARILLON_CODE_UNREACHABLE = 205, /**< the connection broke, and the peer is not known to be dead */
  CARILLON_CODE_AUTH = 206, /**< the peer does not have the job's secret */
  CARILLON_CODE_SYSTEM = 300, /**< an error of a socket, a file, memory or a GPU */
  CARILLON_CODE_TIMEOUT = 301, /**< the deadline of the caller's context passed */
  CARILLON_CODE_INTERNAL = 302, /**< a bug in Carillon */
  CARILLON_CODE_CANCELED = 303, /**< the caller's context was canceled */
};

/** Holds an enum carillon_code. */
typedef uint16_t carillon_code_t;

/** How many there are of each kind. States, calls and events are numbered from 0 without gaps; codes have gaps. */
enum {
  CARILLON_NUM_STATES = 11,
  CARILLON_NUM_CALLS = 28,
  CARILLON_NUM_EVENTS = 7,
  CARILLON_NUM_CODES = 23,
};

/** The cell for a legal call or event that changes no state. A smaller number is the next state, a larger one an error's code. */
enum { CARILLON_LIFECYCLE_STAY = 99 };

/** What becomes of a communicator that is in a state (column) when its user makes a call (row). */
static const uint16_t carillon_lifecycle_calls[CARILLON_NUM_CALLS][CARILLON_NUM_STATES] = {
  /* state                  0    1    2    3    4    5    6    7    8    9   10 */
  /* none               */ {100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100},
  /* init_rank          */ {  1, 101, 101, 101, 101, 101, 101, 101, 101, 101, 101},
  /* init_rank_config   */ {  1, 101, 101, 101, 101, 101, 101, 101, 101, 101, 101},
  /* init_rank_scalable */ {  1, 101, 101, 101, 101, 101, 101, 101, 101, 101, 101},
  /* init_all           */ {  1, 101, 101, 101, 101, 101, 101, 101, 101, 101, 101},
  /* split              */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106,  99},
  /* shrink             */ {100, 102,  99, 103, 103, 104, 104, 105, 105,  99,  99},
  /* grow               */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* revoke             */ {100, 102,  10, 103, 103, 104, 104, 105, 105,  10, 107},
  /* finalize           */ {100, 102,   3, 103, 103, 104, 104, 105, 105, 106, 107},
  /* destroy            */ {100, 102,   5,   5,   5, 104, 104, 105, 105,   5,   5},
  /* abort              */ {100,   7,   7,   7,   7,   7, 104, 105, 105,   7,   7},
  /* async_error        */ {100,  99,  99,  99,  99, 104, 104, 105, 105,  99,  99},
  /* wait               */ {100,  99,  99,  99,  99, 104, 104, 105, 105,  99,  99},
  /* group_start        */ { 99,  99,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* group_end          */ { 99,  99,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* all_reduce         */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* broadcast          */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* reduce             */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* all_gather         */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* reduce_scatter     */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* all_to_all         */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* gather             */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* scatter            */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* send               */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* recv               */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* send_recv          */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
  /* barrier            */ {100, 102,  99, 103, 103, 104, 104, 105, 105, 106, 107},
};

/** What becomes of a communicator that is in a state (column) when something happens (row). No event is an error. */
static const uint16_t carillon_lifecycle_events[CARILLON_NUM_EVENTS][CARILLON_NUM_STATES] = {
  /* state             0    1    2    3    4    5    6    7    8    9   10 */
  /* none          */ { 99,  99,  99,  99,  99,  99,  99,  99,  99,  99,  99},
  /* init_done     */ { 99,   2,  99,  99,  99,  99,  99,  99,  99,  99,  99},
  /* init_failed   */ { 99,   9,  99,  99,  99,  99,  99,  99,  99,  99,  99},
  /* finalize_done */ { 99,  99,  99,   4,  99,  99,  99,  99,  99,  99,  99},
  /* destroy_done  */ { 99,  99,  99,  99,  99,   6,  99,  99,  99,  99,  99},
  /* abort_done    */ { 99,  99,  99,  99,  99,  99,  99,   8,  99,  99,  99},
  /* async_failure */ { 99,   9,   9,   9,  99,  99,  99,  99,  99,  99,  99},
};

/** The states' stable names; index is the number. */
static const char *const carillon_state_names[CARILLON_NUM_STATES] = {
  "none",
  "initializing",
  "ready",
  "finalizing",
  "finalized",
  "destroying",
  "destroyed",
  "aborting",
  "aborted",
  "failed",
  "revoked",
};

/** The calls' stable names; index is the number. */
static const char *const carillon_call_names[CARILLON_NUM_CALLS] = {
  "none",
  "init_rank",
  "init_rank_config",
  "init_rank_scalable",
  "init_all",
  "split",
  "shrink",
  "grow",
  "revoke",
  "finalize",
  "destroy",
  "abort",
  "async_error",
  "wait",
  "group_start",
  "group_end",
  "all_reduce",
  "broadcast",
  "reduce",
  "all_gather",
  "reduce_scatter",
  "all_to_all",
  "gather",
  "scatter",
  "send",
  "recv",
  "send_recv",
  "barrier",
};

/** The events' stable names; index is the number. */
static const char *const carillon_event_names[CARILLON_NUM_EVENTS] = {
  "none",
  "init_done",
  "init_failed",
  "finalize_done",
  "destroy_done",
  "abort_done",
  "async_failure",
};

/** The codes, in order of their numbers. */
static const struct {
  carillon_code_t code;
  uint8_t nccl; /**< the ncclResult_t */
  const char *name;
} carillon_codes[CARILLON_NUM_CODES] = {
  {0, 0, "ok"},
  {1, 7, "in_progress"},
  {100, 4, "invalid_argument"},
  {101, 5, "invalid_usage"},
  {102, 5, "initializing"},
  {103, 5, "finalized"},
  {104, 5, "destroyed"},
  {105, 5, "aborted"},
  {106, 5, "failed"},
  {107, 5, "revoked"},
  {108, 5, "leaked"},
  {109, 5, "unfinished"},
  {200, 6, "rank_dead"},
  {201, 6, "not_joined"},
  {202, 5, "mismatch"},
  {203, 6, "abandoned"},
  {204, 6, "peer_aborted"},
  {205, 6, "unreachable"},
  {206, 6, "auth"},
  {300, 2, "system"},
  {301, 6, "timeout"},
  {302, 3, "internal"},
  {303, 6, "canceled"},
};

/**
 * Applies a call to a communicator in a state.
 *
 * If the call is legal, returns CARILLON_CODE_OK, and *next is the new state, which may be the old one. Otherwise
 * returns the error's code, CARILLON_CODE_INVALID_ARGUMENT for an unknown state or call, and *next is state.
 */
static inline carillon_code_t carillon_lifecycle_next(carillon_state_t state, carillon_call_t call,
                                                      carillon_state_t *next) {
  *next = state;
  if (state >= CARILLON_NUM_STATES || call >= CARILLON_NUM_CALLS) {
    return CARILLON_CODE_INVALID_ARGUMENT;
  }
  const uint16_t cell = carillon_lifecycle_calls[call][state];
  if (cell == CARILLON_LIFECYCLE_STAY) {
    return CARILLON_CODE_OK;
  }
  if (cell < CARILLON_NUM_STATES) {
    *next = (carillon_state_t)cell;
    return CARILLON_CODE_OK;
  }
  return cell;
}

/** The state of a communicator after an event, which is state itself if the event changes nothing. */
static inline carillon_state_t carillon_lifecycle_after(carillon_state_t state, carillon_event_t event) {
  if (state >= CARILLON_NUM_STATES || event >= CARILLON_NUM_EVENTS) {
    return state;
  }
  const uint16_t cell = carillon_lifecycle_events[event][state];
  return cell < CARILLON_NUM_STATES ? (carillon_state_t)cell : state;
}

/** The state's stable name, "ready"; "unknown" for a state that does not exist. */
static inline const char *carillon_state_name(carillon_state_t state) {
  return state < CARILLON_NUM_STATES ? carillon_state_names[state] : "unknown";
}

/** The call's stable name, "all_reduce"; "unknown" for a call that does not exist. */
static inline const char *carillon_call_name(carillon_call_t call) {
  return call < CARILLON_NUM_CALLS ? carillon_call_names[call] : "unknown";
}

/** The event's stable name, "init_done"; "unknown" for an event that does not exist. */
static inline const char *carillon_event_name(carillon_event_t event) {
  return event < CARILLON_NUM_EVENTS ? carillon_event_names[event] : "unknown";
}

/** The code's stable name, "rank_dead"; "unknown" for a code that does not exist. */
static inline const char *carillon_code_name(carillon_code_t code) {
  for (unsigned i = 0; i < CARILLON_NUM_CODES; i++) {
    if (carillon_codes[i].code == code) {
      return carillon_codes[i].name;
    }
  }
  return "unknown";
}

/** The ncclResult_t that a C program gets for the code; ncclInternalError for a code that does not exist. */
static inline int carillon_code_nccl(carillon_code_t code) {
  for (unsigned i = 0; i < CARILLON_NUM_CODES; i++) {
    if (carillon_codes[i].code == code) {
      return carillon_codes[i].nccl;
    }
  }
  return 3;
}

#endif /* CARILLON_LIFECYCLE_H */
