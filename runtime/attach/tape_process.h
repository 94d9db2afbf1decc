/**
 * @file
 * What a tape's header says about its process. Used only by tape_file.c.
 */
#ifndef CARILLON_TAPE_PROCESS_H
#define CARILLON_TAPE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "tape_layout.h"

/** What identifies a process among all others, as in Go's process.Self. */
struct tape_process {
  uint32_t pid;
  uint64_t start_ticks, pid_space;
  uint8_t boot[16];
  char boot_text[TAPE_BOOT_SIZE];
};

/** tape_process returns the identity of this process. */
struct tape_process tape_process(void);

/**
 * tape_place finds the process's rank in the job, -1 if it is unknown, and the number of ranks, as
 * runtime/rendezvous/launch does where a launcher tells both.
 */
void tape_place(int32_t *rank, int32_t *size);

/**
 * tape_job names a job that has no CARILLON_JOB by what its launcher tells all its ranks, but no other job that runs at
 * the time: pytorch-29500-0-none-10.0.0.1; "default" if the launcher tells nothing. Without a launcher, all that runs
 * in one session of a host is one job, such as the session of a terminal or a container: session-4711-node1.
 */
void tape_job(char *name, size_t size);

/**
 * tape_limit reads a duration from the environment, such as "1m30s" or "500ms", in ns; 0 if it is missing or invalid,
 * as with "off".
 */
int64_t tape_limit(const char *variable);

#endif /* CARILLON_TAPE_PROCESS_H */
