/*
 * Shows how far a communicator's operations are on the device: NCCL's functions only launch them. Before and behind
 * some operations, their stream is told to write a number onto the tape (marks, tape.h), through the CUDA driver that
 * the process has loaded. Nothing waits for the write, and nobody polls: the agent reads it from the tape. If CUDA
 * can't do that, or CARILLON_STREAM_MARKS=off, an operation ends with its launch.
 */
#ifndef CARILLON_STREAM_H
#define CARILLON_STREAM_H

#include "comm.h"

/*
 * NCCL is about to launch the communicator's operations on the stream, from number first on the tape to the last one.
 * They are in flight on the tape. The caller has the turn.
 */
void stream_launches(struct comm *, uint64_t first, cudaStream_t);

/* NCCL is about to take up an operation that is in flight on the tape, and is launched with its group. The caller has
   the turn. */
void stream_groups(struct comm *, cudaStream_t);

/* NCCL has launched the operations, if answer says so, or else will or won't. The caller has the turn. */
void stream_launched(struct comm *, ncclResult_t answer);

/* Checks how far the stream is. The caller has the turn. */
void stream_check(struct comm *);

/* The communicator ends. The caller has the turn. */
void stream_close(struct comm *);

#endif
