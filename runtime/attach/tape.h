/**
 * @file
 * The tape's writer in C: what Go's telemetry/tape.Writer and CommWriter are, for a process without Go. The file is the
 * one that its readers know (telemetry/tape says what is on it), with the numbers of tape_layout.h.
 *
 *   tape_open()                      once a process, on its first call to NCCL
 *     tape_comm_new()                a communicator begins: it has a slot of the in-flight table
 *       tape_op_start() … _op_end()  its operations: no lock, no system call, no allocation
 *       tape_life()                  its acts: init, split, destroy, misuse
 *     tape_comm_close()              its slot is free; tape_life() still works
 *     tape_comm_free()               its memory is free
 *
 * Without a tape (it could not be made, or the process is a forked child of the one that made it) every function here
 * does nothing, and so it does with a NULL communicator.
 *
 * Threads. tape_op_start, _phase, _wait and _end of one communicator are for one thread at a time, the one that has its
 * turn: each call happens before the next. Different communicators are used at once by different threads.
 * tape_comm_describe, _close and _free are for the thread that has the turn, too. tape_life and tape_comm_state may be
 * called by any thread at any time between tape_comm_new and tape_comm_free. Functions marked "locks" take one lock of
 * the process for some hundred nanoseconds; none waits for anything else.
 *
 * Memory. No pointer that is passed in is kept; texts are copied and cut to what the tape has room for. A struct
 * tape_comm belongs to the tape until tape_comm_free; then it is gone, as after free(3).
 *
 * Numbers. Calls, states and codes are those of lifecycle/carillon_lifecycle.h (CARILLON_CALL_…, CARILLON_STATE_…,
 * CARILLON_CODE_…); acts, stages and phases TAPE_ACT_…, TAPE_STAGE_…, TAPE_PHASE_… of tape_layout.h; data types
 * and reductions are NCCL's own. A rank that is none, or not known, is -1, and never 0 by neglect.
 *
 * C sources in this folder begin with a line of the kind "//go:build ignore", so that the go command passes over them:
 * it takes a folder with C sources and no cgo for a mistake.
 */
#ifndef CARILLON_TAPE_H
#define CARILLON_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tape_layout.h"

/** What stays the same over a communicator's life. Texts end with a NUL. */
struct tape_info {
  uint8_t id[16];     /**< the same on all ranks */
  uint8_t parent[16]; /**< of the communicator that it was split from; zeros: none */
  char name[56];      /**< "world"; at most 55 bytes */
  int32_t rank, size;
  int32_t nodes;      /**< distinct hosts; 0 until known */
  char engine[16];    /**< "nccl 2.28.9"; at most 15 bytes */
};

/** What the ranks of an operation must agree on. */
struct tape_signature {
  uint8_t call;      /**< CARILLON_CALL_… */
  uint8_t data_type; /**< ncclDataType_t */
  uint8_t reduction; /**< ncclRedOp_t; 5 for one that was made at run time */
  int32_t peer;      /**< root, or the peer of a send or receive; -1 if none */
  uint64_t bytes;    /**< of the whole buffer, as nccl-tests count it: for all-gather, what all ranks together have */
};

/** The place and moment of a call. All zeros: unknown. */
struct tape_site {
  const char *function; /**< "ddp.so+0x1f2c", "train"; NULL: unknown; at most 160 bytes are kept */
  const char *file;     /**< NULL: unknown; of a long name the last 160 bytes are kept */
  int32_t line;
  uint64_t thread;      /**< its number (gettid); 0: unknown */
  int64_t time;         /**< of day: ns since 1970; 0: unknown */
};

/** One moment of an act. */
struct tape_life {
  int64_t time;    /**< tape_now(); 0: now */
  uint8_t act;     /**< TAPE_ACT_…; TAPE_ACT_NONE for misuse of a collective */
  uint8_t call;    /**< CARILLON_CALL_…: the user's call that is the cause */
  uint8_t stage;   /**< TAPE_STAGE_START, _PHASE, _END, _MISUSE */
  uint8_t phase;   /**< TAPE_PHASE_… */
  uint8_t state;   /**< CARILLON_STATE_…: the communicator's after it */
  uint16_t code;   /**< CARILLON_CODE_…: how it ended, or why it was refused */
  int32_t peer;    /**< the rank at fault; -1 if none */
  uint64_t seq;    /**< which act of this kind on this communicator, from 1; 0 for init, finalize, destroy, abort */
  int64_t start;   /**< tape_now() when the act began; in TAPE_STAGE_PHASE and TAPE_STAGE_END */
  const char *text;       /**< the error's text, or what a person should read; at most 1024 bytes are kept */
  struct tape_site site;  /**< where the call was made */
  struct tape_site first; /**< TAPE_STAGE_MISUSE: where the first one was made */
  uint8_t child[16];      /**< TAPE_ACT_SPLIT: the id of the communicator that it made; zeros: none */
  uint32_t ops;           /**< TAPE_ACT_GROUP: number of operations in the group */
  bool shared;            /**< calls had come from other threads than the one that made the communicator */
};

/** Where a tape is made and how large it is. What is 0 is the default; only tests need another. */
struct tape_config {
  const char *dir;      /**< where the jobs' folders are; NULL: the first of tape_folders that serves */
  const char *job;      /**< NULL: $CARILLON_JOB, or else that of tape_job */
  uint32_t slots, tallies, life_records, op_records; /**< the latter two are rounded up to a power of two */
  int64_t slow;         /**< ns from which an operation is slow; 0: $CARILLON_SLOW_THRESHOLD, or else a second */
  int64_t mark_every;   /**< ns after which there may be another mark, beyond those that may follow at once */
  int64_t sample_every; /**< 1 in so many operations that are nothing but ordinary is for followers; negative: none */
};

/** One communicator of this process on its tape. */
struct tape_comm;

/**
 * Makes the tape of this process, on its first call: DIR/JOB/HOST-PID.tape, for this user alone, with its whole size
 * reserved. If it can't be made, or not as large as it should be, one line on stderr says why. The process's rank and
 * their number are those of its launcher (CARILLON_RANK, RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID; …).
 * Returns whether there is a tape to write on; later calls cost a load and a branch. Locks.
 */
bool tape_open(void);

/** tape_open, not as the environment says. It counts only if it is the first. */
bool tape_open_with(const struct tape_config *config);

/** The file's name; "" if there is none. It stays good. */
const char *tape_path(void);

/**
 * Says on the tape that the process ends in order; readers tell an end from a death by it. It is called by itself when
 * the process exits, after the destructors of other parts of this library that have no priority. New communicators find
 * no tape then; others may write on. Locks.
 */
void tape_close(void);

/**
 * Says that a message was not counted, or was counted and is not sent: from now on, the communicator's messages are not
 * counted. Nothing if there is none. By any thread.
 */
void tape_uncount(struct tape_comm *);

/** Counts an unexpected call to the profiler plug-in, by TAPE_UNEXPECTED_*. Nothing without a tape. By any thread. */
void tape_unexpected(size_t kind);

/** CLOCK_MONOTONIC in ns: the clock of all times on the tape. */
int64_t tape_now(void);

/**
 * Takes a slot of the in-flight table for a communicator that begins its life. from is the one from which this rank
 * made it, by a split for instance, which must not be freed yet; NULL: none. The answer is NULL if there is no tape,
 * or no memory. Locks, allocates.
 */
struct tape_comm *tape_comm_new(const struct tape_info *info, const struct tape_comm *from);

/** Says what became known about the communicator since: the number of nodes, the engine. It replaces all. Locks. */
void tape_comm_describe(struct tape_comm *comm, const struct tape_info *info);

/** Puts the communicator's state into its slot. It makes no record: tape_life does. Locks, if the state is another. */
void tape_comm_state(struct tape_comm *comm, uint8_t state);

/** Frees the communicator's slot. What is written later, a second destroy, is in the rings alone. Locks. */
void tape_comm_close(struct tape_comm *comm);

/** Closes the communicator, if it is not, and gives its memory back: nothing may use it any more. Locks. */
void tape_comm_free(struct tape_comm *comm);

/**
 * Writes one moment of an act. It makes a system call if a follower sleeps, to wake it. Of calls that are refused again
 * and again (TAPE_STAGE_MISUSE) the 1st, 2nd, 4th, 8th and so on are written, so that a loop can't overwrite everything
 * else. For those it locks.
 */
void tape_life(struct tape_comm *comm, const struct tape_life *life);

/**
 * Launches the communicator's next operation. number is what its ranks agree to call it: of a collective, its number on
 * the communicator, from 1; of a send or receive, the number of the message between the two ranks in that direction. 0
 * is the same as the answer: how many were launched with it, by which tape_op_end knows it. 0 if there is no tape. The
 * first one of a kind (call, class of sizes) of a communicator locks.
 */
uint64_t tape_op_start(struct tape_comm *comm, uint64_t number, const struct tape_signature *signature,
                       uint8_t algorithm);

/** Says that the oldest operation in flight, which is the one that runs, went into another phase. */
void tape_op_phase(struct tape_comm *comm, uint8_t phase);

/**
 * Says that the oldest operation in flight was called for in a group that is open, or not any more. It is in the slot
 * alone: a group makes no records.
 */
void tape_op_group(struct tape_comm *comm, bool open);

/** Says which rank the oldest operation in flight waits for; -1: none. */
void tape_op_wait(struct tape_comm *comm, int32_t rank);

/**
 * Says that the operation for which tape_op_start answered launched ended, and how. Operations may end in any order.
 * Ending what is not in flight does nothing.
 */
void tape_op_end(struct tape_comm *comm, uint64_t launched, uint16_t code);

/** The same of one that NCCL did nothing of. tape_begun follows behind the last one. */
void tape_op_refuse(struct tape_comm *comm, uint64_t launched, uint16_t code);

/** Says which collective was the last that began, where later ones were refused, and have no number. */
void tape_begun(struct tape_comm *, uint64_t number);

/*
 * Marks: where operations are launched on a stream of a device, and end on the tape when they are, the stream writes
 * how far it is onto the tape itself.
 *
 *   tape_reached()                     once, to give the device access to that memory
 *   tape_op_start()
 *     tape_mark_due()                  the operation is to be launched; is there to be a mark behind it?
 *     tape_mark_before(), _number()    what the stream is to write where, before the operation
 *   tape_op_end()
 *     tape_mark_word(), _number()      and behind it
 *     tape_mark()                      it will
 *   tape_mark_check()                  now and then
 *
 * These are for the thread that has the turn, but for tape_reached.
 */

/** The memory that devices write, of whole pages, and its size in bytes; NULL if there is no tape. It stays good. */
void *tape_reached(size_t *size);

/**
 * Says whether a mark should follow the operation launched last, which is in flight: there may be 64 at once, and one
 * every two milliseconds, on the communicators that have the first 128 slots. If so, tape_mark is about that one. What
 * is launched together with it, in a group, begins with the first.
 */
bool tape_mark_due(struct tape_comm *comm, uint64_t first);

/** Says that the operation is launched now, and not when it was called for: its age on the stream counts from now. */
void tape_mark_launched(struct tape_comm *comm);

/**
 * The word that the stream is to write before what is launched. NULL: it would tell nothing, as what the stream is busy
 * with may be the communicator's own: there is no mark behind the operation before, or an unreached one on another
 * stream.
 */
uint32_t *tape_mark_before(const struct tape_comm *comm, bool same_stream);

/** The word that the stream is to write behind it, in tape_reached's memory; NULL: none. */
uint32_t *tape_mark_word(const struct tape_comm *comm);

/** The number that it is to write there. */
uint32_t tape_mark_number(const struct tape_comm *comm);

/**
 * Says that the stream will write the number, and if told, that it does so before, too. Nothing, if no mark is due.
 * stream is the same for marks on one stream, and else mostly not; 0: it isn't known.
 */
void tape_mark(struct tape_comm *comm, bool told, uint32_t stream);

/**
 * Looks how far the stream is. The op ring gets the start of an operation once that was not done for as long as is
 * slow, and its end when that is seen, or the communicator ends: then the code is "aborted", and streams aren't looked
 * at any more. Costs next to nothing without marks.
 */
void tape_mark_check(struct tape_comm *comm, bool ends);

/**
 * Says whether to observe the operation that was called for last, or its group: a communicator's first, one every 30 s,
 * and while the stream is slow one at a time.
 */
bool tape_observes(struct tape_comm *comm);

/** Says that what a mark is due for is observed: tape_observed is about the mark, once it is there. */
void tape_observe(struct tape_comm *comm);

/** Says whether a mark is due for several operations, which are a group. */
bool tape_mark_groups(const struct tape_comm *comm);

/** Says whether the stream has reached what is observed. */
bool tape_observed(const struct tape_comm *comm);

/** Puts onto the op ring how many ns the device took for the operation that is observed, if that is not a group. */
void tape_measured(struct tape_comm *comm, int64_t took);

/** An operation whose proxies and kernels are looked into, as its records have it; of a group, its last one. */
struct tape_look {
  uint64_t number, launched, bytes;
  uint32_t kinds;
  int32_t peer;
  int64_t start;
};

/** The data that it has sent to a rank of another node. */
struct tape_proxied {
  int32_t peer;
  uint64_t bytes;
  int64_t start, end;
  uint8_t waited; /**< TAPE_PHASE_CREDIT, _NETWORK, or _NONE: for what, when nothing happened for longest */
};

/** The operation for which a mark is due. False if there is none. */
bool tape_look_at(const struct tape_comm *comm, struct tape_look *look);

/** The operation that was started last. False if none is in flight. */
bool tape_look_at_last(struct tape_comm *comm, struct tape_look *look);

/*
 * What was seen of it. These may be called by any thread, one at a time, until tape_comm_close.
 */

/**
 * Says for which rank its data waits, since when, and for what: for that rank's data (TAPE_PHASE_STREAM, as that waits
 * for a device), for its credit (TAPE_PHASE_CREDIT), or for the network (TAPE_PHASE_NETWORK); -1: for none.
 */
void tape_waits(struct tape_comm *comm, const struct tape_look *look, uint8_t phase, int32_t rank, int64_t since);

/** Puts onto the op ring what it has sent, and when its kernel ran, or, in TAPE_PHASE_AGREE, waited for the others. */
void tape_proxied(struct tape_comm *comm, const struct tape_look *look, const struct tape_proxied *sent);
void tape_kernel(struct tape_comm *comm, const struct tape_look *look, uint8_t phase, int64_t start, int64_t end);

/**
 * Says that the operations from the first on, which are in flight, are captured in a graph, whose launches are unseen.
 * The ends of those that end well have TAPE_PHASE_CAPTURED, and no mark follows.
 */
void tape_captured(struct tape_comm *comm, uint64_t first);

#endif /* CARILLON_TAPE_H */
