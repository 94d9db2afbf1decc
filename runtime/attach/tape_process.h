/**
 * @file
 * What a tape's header says of its process. For tape_file.c alone.
 */
#ifndef CARILLON_TAPE_PROCESS_H
#define CARILLON_TAPE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "tape_layout.h"

/** What tells a process from all others; as process.Self has it. */
struct tape_process {
  uint32_t pid;
  uint64_t start_ticks, pid_space;
  uint8_t boot[16];
  char boot_text[TAPE_BOOT_SIZE];
};

/** tape_process is this process. */
struct tape_process tape_process(void);

/**
 * tape_place finds the process's rank in the job, -1 if it is unknown, and how many ranks that has, as
 * runtime/rendezvous/launch does where a launcher says both.
 */
void tape_place(int32_t *rank, int32_t *size);

/**
 * tape_job names a job that has no CARILLON_JOB by what its launcher tells all its ranks, and those of no other job
 * that runs at the time: pytorch-29500-0-none-10.0.0.1; "default" if that is nothing. Without a launcher, a job is what
 * runs in one session of a host, such as that of a terminal or a container: session-4711-node1.
 */
void tape_job(char *name, size_t size);

/** tape_limit reads a time from the environment, as "1m30s" or "500ms", in ns; 0 if there is none, as with "off". */
int64_t tape_limit(const char *variable);

#endif /* CARILLON_TAPE_PROCESS_H */
