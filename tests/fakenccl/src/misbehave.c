// The faults of each version; profiler.c and ras.c have those of their parts.
//
//   destroyed twice (nccl#1482, every version)   the check reads freed memory: it answers "invalid argument" and leaves
//                                                the thread's group depth raised; with FAKENCCL_HEAP=dirty that memory
//                                                has been reused, and the process dies
//   split with an unfinished group job (nccl#1605, before 2.26.2)   if nobody has asked a non-blocking communicator for
//                                                the result of its last call (ncclCommGetAsyncError), the next
//                                                operation after a split dies in ncclGroupCommJoin
#include <stdlib.h>
#include <string.h>

#include "fake.h"

bool is_before(int v) {
  return version < v;
}

void dirty(void *memory, size_t bytes) {
  const char *heap = getenv("FAKENCCL_HEAP");
  if (heap && !strcmp(heap, "dirty")) memset(memory, 0x5a, bytes);
}

bool is_cut(const struct ncclComm *c) {
  const char *rank = getenv("FAKENCCL_CUT");
  return rank && c->rank == atoi(rank);
}

bool breaks(const struct ncclComm *c, size_t bytes) {
  const char *size = getenv("FAKENCCL_BREAKS");
  return size && c->rank == c->nranks - 1 && bytes == strtoull(size, NULL, 10);
}
