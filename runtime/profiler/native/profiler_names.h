/*
 * The numbers in version 1 of NCCL's profiler interface, and the texts that replaced them. An unknown number has no
 * text; an unknown text has the number that NCCL gives it for version 1.
 */
#ifndef CARILLON_PROFILER_NAMES_H
#define CARILLON_PROFILER_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PROFILER_NAMES(WHAT, OTHER, ...)                                            \
  static const char *const profiler_##WHAT##_names[] = {__VA_ARGS__};               \
  static inline const char *profiler_##WHAT##_name(uint8_t number) {                \
    const size_t n = sizeof profiler_##WHAT##_names / sizeof *profiler_##WHAT##_names; \
    return number < n ? profiler_##WHAT##_names[number] : NULL;                     \
  }                                                                                 \
  static inline uint8_t profiler_##WHAT##_number(const char *name) {                \
    const size_t n = sizeof profiler_##WHAT##_names / sizeof *profiler_##WHAT##_names; \
    for (size_t i = 0; name != NULL && i < n; i++) {                                \
      if (strcmp(name, profiler_##WHAT##_names[i]) == 0) {                          \
        return (uint8_t)i;                                                          \
      }                                                                             \
    }                                                                               \
    return OTHER;                                                                   \
  }

PROFILER_NAMES(func, 6, "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv")
PROFILER_NAMES(datatype, 8, "ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64",
               "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2")
PROFILER_NAMES(algo, 6, "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROFILER_NAMES(proto, 2, "LL", "LL128", "SIMPLE")

#endif
