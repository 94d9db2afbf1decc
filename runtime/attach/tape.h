/**
 * @file
 * The tape's writer in C: the counterpart of Go's telemetry/tape.Writer and CommWriter, for a process without Go. The
 * file has the format that its readers know (telemetry/tape defines it), with the numbers of tape_layout.h.
 *
 *   tape_open()                      once per process, on its first call to NCCL
 *     tape_comm_new()                a communicator begins: it gets a slot of the in-flight table
 *       tape_op_start() … _op_end()  its operations: no lock, no system call, no allocation
 *       tape_life()                  its acts: init, split, destroy, misuse
 *     tape_comm_close()              frees its slot; tape_life() still works
 *     tape_comm_free()               frees its memory
 *
 * Without a tape (it could not be made, or the process is a forked child of the one that made it) every function here
 * does nothing. The same holds for a NULL communicator.
 *
 * Threads. tape_op_start, _phase, _wait and _end of one communicator may be called by one thread at a time, the one
 * that has its turn: each call happens before the next. Different communicators may be used by different threads at
 * once. Only the thread that has the turn may call tape_comm_describe, _close and _free. Any thread may call tape_life
 * and tape_comm_state at any time between tape_comm_new and tape_comm_free. Functions marked "locks" take one lock of
 * the process for some hundred nanoseconds; no function waits for anything else.
 *
 * Memory. No pointer that is passed in is kept; texts are copied and cut to what the tape has room for. The tape owns a
 * struct tape_comm until tape_comm_free; after that it is invalid, as after free(3).
 *
 * Numbers. Calls, states and codes are those of lifecycle/carillon_lifecycle.h (CARILLON_CALL_…, CARILLON_STATE_…,
 * CARILLON_CODE_…); acts, stages and phases are TAPE_ACT_…, TAPE_STAGE_… and TAPE_PHASE_… of tape_layout.h; data types
 * and reductions are NCCL's own. A rank that doesn't exist or is unknown is -1; callers must not leave it 0.
 *
 * C sources in this folder begin with a line like "//go:build ignore", so that the go command ignores them: it reports
 * an error for a folder that has C sources but doesn't use cgo.
 */
#ifndef CARILLON_TAPE_H
#define CARILLON_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tape_layout.h"

/** What is fixed during a communicator's life, apart from tape_comm_describe. Texts end with a NUL. */
struct tape_info {
  uint8_t id[16];     /**< the same on all ranks */
  uint8_t parent[16]; /**< the id of the communicator that this one was split from; zeros: none */
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
  uint64_t bytes;    /**< of the whole buffer, as nccl-tests count it: for all-gather, that of all ranks together */
};

/** The place and moment of a call. All zeros: unknown. */
struct tape_site {
  const char *function; /**< "ddp.so+0x1f2c", "train"; NULL: unknown; at most 160 bytes are kept */
  const char *file;     /**< NULL: unknown; the last 160 bytes of a long name are kept */
  int32_t line;
  uint64_t thread;      /**< the caller's thread number (gettid); 0: unknown */
  int64_t time;         /**< ns since 1970; 0: unknown */
};

/** One step of an act: its start, a phase, its end, or a misuse. */
struct tape_life {
  int64_t time;    /**< tape_now(); 0: now */
  uint8_t act;     /**< TAPE_ACT_…; TAPE_ACT_NONE for misuse of a collective */
  uint8_t call;    /**< CARILLON_CALL_…: the user's call that is the cause */
  uint8_t stage;   /**< TAPE_STAGE_START, _PHASE, _END, _MISUSE */
  uint8_t phase;   /**< TAPE_PHASE_… */
  uint8_t state;   /**< CARILLON_STATE_…: the communicator's state afterwards */
  uint16_t code;   /**< CARILLON_CODE_…: how it ended, or why it was refused */
  int32_t peer;    /**< the rank at fault; -1 if none */
  uint64_t seq;    /**< which act of this kind on this communicator, from 1; 0 for init, finalize, destroy, abort */
  int64_t start;   /**< tape_now() when the act began; in TAPE_STAGE_PHASE and TAPE_STAGE_END */
  const char *text;       /**< the error's text, or a message for people; at most 1024 bytes are kept */
  struct tape_site site;  /**< where the call was made */
  struct tape_site first; /**< TAPE_STAGE_MISUSE: the site of the earlier call that rules this one out */
  uint8_t child[16];      /**< TAPE_ACT_SPLIT: the id of the communicator that the split made; zeros: none */
  uint32_t ops;           /**< TAPE_ACT_GROUP: number of operations in the group */
  bool shared;            /**< threads other than the one that made the communicator have made calls on it */
};

/** Where a tape is made and how large it is. Fields that are 0 have their default; only tests set others. */
struct tape_config {
  const char *dir;      /**< the directory of the jobs' folders; NULL: the first of tape_folders that can be used */
  const char *job;      /**< NULL: $CARILLON_JOB, or else the name from tape_job */
  uint32_t slots, tallies, life_records, op_records; /**< the latter two are rounded up to a power of two */
  int64_t slow;         /**< ns from which an operation is slow; 0: $CARILLON_SLOW_THRESHOLD, or else one second */
  int64_t mark_every;   /**< ns between two marks, apart from those of a burst; 0: the default */
  int64_t sample_every; /**< followers see 1 in so many ordinary operations; negative: none */
};

/** One communicator of this process and its place on the tape. */
struct tape_comm;

/**
 * Makes the tape of this process, on the first call: DIR/JOB/HOST-PID.tape, private to this user, with its whole size
 * reserved. If the tape can't be made, or not as large as it should be, one line on stderr says why. The process's rank
 * and the number of ranks come from its launcher (CARILLON_RANK, RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID;
 * …). Returns whether there is a tape to write to; later calls cost a load and a branch. Locks.
 */
bool tape_open(void);

/** Like tape_open, but with a config instead of the environment. Only the first call of either has an effect. */
bool tape_open_with(const struct tape_config *config);

/** The file's path; "" if there is no tape. The pointer stays valid. */
const char *tape_path(void);

/**
 * Records on the tape that the process ends in order; by this, readers tell an orderly end from a death. Runs by itself
 * when the process exits, after the destructors of this library that have no priority. New communicators get no tape
 * after it; existing ones may still write. Locks.
 */
void tape_close(void);

/**
 * Records that a message was not counted, or was counted but not sent: from now on, the communicator's messages are not
 * counted. Does nothing if there are no counts. May be called by any thread.
 */
void tape_uncount(struct tape_comm *);

/**
 * Counts an unexpected call to the profiler plug-in, by TAPE_UNEXPECTED_*. Does nothing without a tape. May be called
 * by any thread.
 */
void tape_unexpected(size_t kind);

/** CLOCK_MONOTONIC in ns: the clock of all times on the tape. */
int64_t tape_now(void);

/**
 * Takes a slot of the in-flight table for a new communicator. from is the communicator that this rank made it from, by
 * a split for instance, and must not have been freed; NULL: none. Returns NULL if there is no tape, or no memory.
 * Locks, allocates.
 */
struct tape_comm *tape_comm_new(const struct tape_info *info, const struct tape_comm *from);

/**
 * Updates what is known about the communicator, such as the number of nodes or the engine. Replaces all of tape_info.
 * Locks.
 */
void tape_comm_describe(struct tape_comm *comm, const struct tape_info *info);

/** Puts the communicator's state into its slot. Writes no record: tape_life does. Locks, if the state changes. */
void tape_comm_state(struct tape_comm *comm, uint8_t state);

/** Frees the communicator's slot. Later writes, such as a second destroy, go only to the rings. Locks. */
void tape_comm_close(struct tape_comm *comm);

/** Closes the communicator, if it is open, and frees its memory: nothing may use it any more. Locks. */
void tape_comm_free(struct tape_comm *comm);

/**
 * Writes one step of an act. Makes a system call only to wake a follower that sleeps. Of repeated refused calls
 * (TAPE_STAGE_MISUSE) only the 1st, 2nd, 4th, 8th and so on are written, so that a loop can't overwrite everything
 * else. Locks for these.
 */
void tape_life(struct tape_comm *comm, const struct tape_life *life);

/**
 * Launches the communicator's next operation. number is the one that its ranks agree on: for a collective, its number
 * on the communicator, from 1; for a send or receive, the number of the message between the two ranks in that
 * direction. 0 means the returned number. Returns how many operations the communicator has launched, including this
 * one, which identifies it for tape_op_end; 0 if there is no tape. Locks for the first operation of a kind (call, size
 * class) on a communicator.
 */
uint64_t tape_op_start(struct tape_comm *comm, uint64_t number, const struct tape_signature *signature,
                       uint8_t algorithm);

/** Records that the oldest operation in flight, which is the one that runs, has entered another phase. */
void tape_op_phase(struct tape_comm *comm, uint8_t phase);

/**
 * Records whether the oldest operation in flight was called in a group that is still open. This changes only the slot:
 * a group makes no records.
 */
void tape_op_group(struct tape_comm *comm, bool open);

/** Records which rank the oldest operation in flight waits for; -1: none. */
void tape_op_wait(struct tape_comm *comm, int32_t rank);

/**
 * Records that an operation ended, and how; launched is what tape_op_start returned for it. Operations may end in any
 * order. Does nothing if the operation is not in flight.
 */
void tape_op_end(struct tape_comm *comm, uint64_t launched, uint16_t code);

/** The same for an operation that NCCL refused. tape_begun follows after the last one. */
void tape_op_refuse(struct tape_comm *comm, uint64_t launched, uint16_t code);

/** Records which collective was the last that began, after later ones were refused, and so have no number. */
void tape_begun(struct tape_comm *, uint64_t number);

/*
 * Marks: where operations are launched on a stream of a device, and end on the tape with the launch, the stream itself
 * writes to the tape how far it is.
 *
 *   tape_reached()                     once, to give the device access to that memory
 *   tape_op_start()
 *     tape_mark_due()                  the operation is about to be launched; should a mark follow it?
 *     tape_mark_before(), _number()    what the stream is to write before the operation, and where
 *   tape_op_end()
 *     tape_mark_word(), _number()      and behind it
 *     tape_mark()                      the stream will write that
 *   tape_mark_check()                  now and then
 *
 * Only the thread that has the turn may call these, except for tape_reached.
 */

/** The memory that devices write, in whole pages, and its size in bytes; NULL if there is no tape. It stays valid. */
void *tape_reached(size_t *size);

/**
 * Returns whether a mark should follow the operation launched last, which is in flight: marks may come in bursts of 64,
 * and then one every two milliseconds, on the communicators that have the first 128 slots. If so, tape_mark is about
 * that operation. first is the first of the operations that are launched together with it, in a group.
 */
bool tape_mark_due(struct tape_comm *comm, uint64_t first);

/** Records that the operation is launched now, and not when it was called: its age on the stream counts from now. */
void tape_mark_launched(struct tape_comm *comm);

/**
 * The word that the stream is to write before what is launched. NULL: such a write would prove nothing, as the stream
 * may be busy with the communicator's own work: the operation before has no mark behind it, or has an unreached one on
 * another stream.
 */
uint32_t *tape_mark_before(const struct tape_comm *comm, bool same_stream);

/** The word, in tape_reached's memory, that the stream is to write behind the operation; NULL: none. */
uint32_t *tape_mark_word(const struct tape_comm *comm);

/** The number that the stream is to write there. */
uint32_t tape_mark_number(const struct tape_comm *comm);

/**
 * Records that the stream will write the number behind the operation and, if told, also before it. Does nothing if no
 * mark is due. stream is the same number for all marks on one stream, and usually another one for other streams; 0:
 * unknown.
 */
void tape_mark(struct tape_comm *comm, bool told, uint32_t stream);

/**
 * Checks how far the stream is. Writes an operation's start to the op ring once the operation is slow, and its end when
 * that is seen. ends: the communicator ends; the operation then ends with "aborted", and streams aren't checked any
 * more. Costs almost nothing without marks.
 */
void tape_mark_check(struct tape_comm *comm, bool ends);

/**
 * Returns whether to observe the operation that was called last, or its group: a communicator's first, one every 30 s,
 * and one at a time while the stream is slow.
 */
bool tape_observes(struct tape_comm *comm);

/**
 * Records that the operation for which a mark is due is observed: tape_observed is about its mark, once there is one.
 */
void tape_observe(struct tape_comm *comm);

/** Returns whether the mark that is due is for several operations, which are a group. */
bool tape_mark_groups(const struct tape_comm *comm);

/** Returns whether the stream has reached the mark of what is observed. */
bool tape_observed(const struct tape_comm *comm);

/** Writes to the op ring the device's time in ns for the observed operation, which must not be a group. */
void tape_measured(struct tape_comm *comm, int64_t took);

/**
 * An operation whose proxies and kernels are looked into, with the fields of its records; for a group, its last
 * operation.
 */
struct tape_look {
  uint64_t number, launched, bytes;
  uint32_t kinds;
  int32_t peer;
  int64_t start;
};

/** The data that an operation has sent to a rank on another node. */
struct tape_proxied {
  int32_t peer;
  uint64_t bytes;
  int64_t start, end;
  uint8_t waited; /**< TAPE_PHASE_CREDIT, _NETWORK, or _NONE: what the longest time without progress was a wait for */
};

/** Gets the operation for which a mark is due. False if there is none. */
bool tape_look_at(const struct tape_comm *comm, struct tape_look *look);

/** Gets the operation that was started last. False if none is in flight. */
bool tape_look_at_last(struct tape_comm *comm, struct tape_look *look);

/*
 * What was seen of such an operation. These may be called by any thread, one at a time, until tape_comm_close.
 */

/**
 * Records which rank the operation's data waits for, since when, and for what: for that rank's data (TAPE_PHASE_STREAM,
 * as that rank may wait for a device), for its credit (TAPE_PHASE_CREDIT), or for the network (TAPE_PHASE_NETWORK);
 * rank -1: none.
 */
void tape_waits(struct tape_comm *comm, const struct tape_look *look, uint8_t phase, int32_t rank, int64_t since);

/**
 * Write to the op ring what it has sent, and when its kernel ran or, in TAPE_PHASE_AGREE, waited for the other kernels.
 */
void tape_proxied(struct tape_comm *comm, const struct tape_look *look, const struct tape_proxied *sent);
void tape_kernel(struct tape_comm *comm, const struct tape_look *look, uint8_t phase, int64_t start, int64_t end);

/**
 * Records that the operations from first on, which are in flight, are captured in a graph, whose launches are not seen.
 * Those that end without error end with TAPE_PHASE_CAPTURED, and no mark follows.
 */
void tape_captured(struct tape_comm *comm, uint64_t first);

#endif /* CARILLON_TAPE_H */
