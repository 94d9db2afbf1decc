/*
 * How far a communicator's operations are on the device: NCCL's functions only launch them. Before and behind an
 * operation now and then, its stream is told to write a number onto the tape (tape.h, marks), through the CUDA driver
 * that the process has loaded. Nothing waits for it, and nobody is asked: the agent reads it there. If CUDA can't do
 * that, or CARILLON_STREAM_MARKS=off says so, an operation's end is that of its launch.
 */
#ifndef CARILLON_STREAM_H
#define CARILLON_STREAM_H

#include "comm.h"

/*
 * NCCL is about to launch the communicator's operations from the first on, as the tape counts them, to its last one, on
 * the stream; they are in flight on the tape.
 */
void stream_launches(struct comm *, uint64_t first, cudaStream_t);

/* NCCL is about to take an operation up that is in flight on the tape, and is launched with its group. As above. */
void stream_groups(struct comm *, cudaStream_t);

/* NCCL has launched them, if it answered so, or else will, or won't. As above, the caller has the turn. */
void stream_launched(struct comm *, ncclResult_t answer);

/* Looks how far its stream is. The caller has the turn, as above. */
void stream_check(struct comm *);

/* The communicator ends. As above. */
void stream_close(struct comm *);

#endif
