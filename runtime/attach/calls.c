//go:build ignore

/*
 * The functions that stand in front of NCCL's, under their names and those of their pnccl twins: all that make, use or
 * end a communicator. Each asks the guards, calls NCCL, and records the result. A call on an unknown communicator
 * passes through untouched, as does every call that NCCL makes to its own functions.
 *
 * The library follows a program's pointers no further than NCCL does: it reads what NCCL writes only after NCCL has
 * succeeded, a unique id only if the call has at least one, and a configuration only up to its size and if it has the
 * magic.
 */
#include "acts.h"

#include <stdio.h>

#include "resolve.h"
#include "stream.h"

#define EXPORT(name) \
  extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default"))); \
  __attribute__((visibility("default")))

/* Bytes of an element; 0 for an unknown type. */
static uint64_t size_of(ncclDataType_t type) {
  static const uint8_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return (unsigned)type < ncclNumTypes ? sizes[type] : 0;
}

/* Returns the number of the next operation: messages are numbered for each peer and direction, collectives on the
   communicator. */
static uint64_t number_of(struct comm *comm, carillon_call_t call, int peer) {
  if (call != CARILLON_CALL_SEND && call != CARILLON_CALL_RECV) {
    return ++comm->collectives;
  }
  if (peer < 0 || (uint32_t)peer >= comm->size_known) {
    return 0;
  }
  return ++comm->messages[call == CARILLON_CALL_SEND ? (uint32_t)peer : comm->size_known + (uint32_t)peer];
}

/* Starts the operation of a call on the tape. The guards have let the call pass. */
static void start(struct use *u, ncclDataType_t type, int reduction, int peer, size_t count) {
  if (u->comm == NULL) {
    return;
  }
  if (u->turn == 0) {
    tape_uncount(u->comm->tape);
    return;
  }
  const struct tape_signature signature = {
      .call = u->call,
      .data_type = (uint8_t)type,
      .reduction = (uint8_t)(reduction < ncclNumOps ? reduction : ncclNumOps),
      .peer = peer,
      .bytes = count * size_of(type),
  };
  const uint64_t begun = u->comm->collectives;
  u->launch.first = u->launch.last =
      tape_op_start(u->comm->tape, number_of(u->comm, u->call, peer), &signature, 0);
  u->launch.collectives = (uint32_t)(u->comm->collectives - begun);
  u->launch.derived = guard_derives(u->call);
  if (u->thread->depth > 0) {
    tape_op_group(u->comm->tape, true);
  }
}

/* The same for an operation on a stream. */
static void launch(struct use *u, ncclDataType_t type, int reduction, int peer, size_t count, cudaStream_t stream) {
  start(u, type, reduction, peer, count);
  if (u->launch.first != 0) {
    u->on_stream = true;
    u->stream = stream;
    if (u->thread->depth == 0) {
      stream_launches(u->comm, u->launch.first, stream);
    } else {
      stream_groups(u->comm, stream);
    }
  }
}

/* Defines a function that is an operation. elements is their number; where each rank has a part, of all ranks
   together. */
#define OPERATION(name, call, params, args, type, reduction, peer, elements) \
  EXPORT(name) ncclResult_t name params { \
    struct use u; \
    if (!use_begin(&u, comm, CARILLON_CALL_##call, #name, CALLER)) { \
      return u.answer; \
    } \
    launch(&u, type, reduction, peer, elements, stream); \
    return use_end(&u, REAL(name) args); \
  }

/* The number of ranks of the communicator that the call is on. */
#define RANKS ((size_t)(u.comm != NULL ? u.comm->size : 0))

OPERATION(ncclAllReduce, ALL_REDUCE,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
           ncclComm_t comm, cudaStream_t stream),
          (sendbuff, recvbuff, count, datatype, op, comm, stream), datatype, op, -1, count)
OPERATION(ncclAllReduceConfig, ALL_REDUCE,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, count, datatype, op, comm, stream, config), datatype, op, -1, count)
OPERATION(ncclReduce, REDUCE,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
           ncclComm_t comm, cudaStream_t stream),
          (sendbuff, recvbuff, count, datatype, op, root, comm, stream), datatype, op, root, count)
OPERATION(ncclReduceConfig, REDUCE,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, count, datatype, op, root, comm, stream, config), datatype, op, root, count)
OPERATION(ncclBcast, BROADCAST,
          (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream),
          (buff, count, datatype, root, comm, stream), datatype, 0, root, count)
OPERATION(ncclBroadcast, BROADCAST,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
           cudaStream_t stream),
          (sendbuff, recvbuff, count, datatype, root, comm, stream), datatype, 0, root, count)
OPERATION(ncclBroadcastConfig, BROADCAST,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
           cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, count, datatype, root, comm, stream, config), datatype, 0, root, count)
OPERATION(ncclReduceScatter, REDUCE_SCATTER,
          (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
           ncclComm_t comm, cudaStream_t stream),
          (sendbuff, recvbuff, recvcount, datatype, op, comm, stream), datatype, op, -1, recvcount *RANKS)
OPERATION(ncclReduceScatterConfig, REDUCE_SCATTER,
          (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, recvcount, datatype, op, comm, stream, config), datatype, op, -1, recvcount *RANKS)
OPERATION(ncclAllGather, ALL_GATHER,
          (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
           cudaStream_t stream),
          (sendbuff, recvbuff, sendcount, datatype, comm, stream), datatype, 0, -1, sendcount *RANKS)
OPERATION(ncclAllGatherConfig, ALL_GATHER,
          (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
           cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, sendcount, datatype, comm, stream, config), datatype, 0, -1, sendcount *RANKS)
OPERATION(ncclAlltoAll, ALL_TO_ALL,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
           cudaStream_t stream),
          (sendbuff, recvbuff, count, datatype, comm, stream), datatype, 0, -1, count *RANKS)
OPERATION(ncclAlltoAllConfig, ALL_TO_ALL,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
           cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, count, datatype, comm, stream, config), datatype, 0, -1, count *RANKS)
OPERATION(ncclGather, GATHER,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
           cudaStream_t stream),
          (sendbuff, recvbuff, count, datatype, root, comm, stream), datatype, 0, root, count *RANKS)
OPERATION(ncclGatherConfig, GATHER,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
           cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, count, datatype, root, comm, stream, config), datatype, 0, root, count *RANKS)
OPERATION(ncclScatter, SCATTER,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
           cudaStream_t stream),
          (sendbuff, recvbuff, count, datatype, root, comm, stream), datatype, 0, root, count *RANKS)
OPERATION(ncclScatterConfig, SCATTER,
          (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
           cudaStream_t stream, const ncclCollConfig_t *config),
          (sendbuff, recvbuff, count, datatype, root, comm, stream, config), datatype, 0, root, count *RANKS)
OPERATION(ncclSend, SEND,
          (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
           cudaStream_t stream),
          (sendbuff, count, datatype, peer, comm, stream), datatype, 0, peer, count)
OPERATION(ncclRecv, RECV,
          (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream),
          (recvbuff, count, datatype, peer, comm, stream), datatype, 0, peer, count)

/* Defines a function that the guards check, as the given call of the table, and that is not recorded on the tape. */
#define USE(name, call, params, args) \
  EXPORT(name) ncclResult_t name params { \
    struct use u; \
    return use_begin(&u, comm, CARILLON_CALL_##call, #name, CALLER) ? use_end(&u, REAL(name) args) : u.answer; \
  }

USE(ncclPutSignal, SEND,
    (const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
     size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
    (localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, comm, stream))
USE(ncclSignal, SEND, (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
    (peer, sigIdx, ctx, flags, comm, stream))
USE(ncclWaitSignal, RECV, (int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream),
    (nDesc, signalDescs, comm, stream))
USE(ncclCommCount, ASYNC_ERROR, (const ncclComm_t comm, int *count), (comm, count))
USE(ncclCommCuDevice, ASYNC_ERROR, (const ncclComm_t comm, int *device), (comm, device))
USE(ncclCommUserRank, ASYNC_ERROR, (const ncclComm_t comm, int *rank), (comm, rank))
USE(ncclCommGetUniqueId, ASYNC_ERROR, (ncclComm_t comm, ncclUniqueId *uniqueId), (comm, uniqueId))
USE(ncclCommRegister, ASYNC_ERROR, (const ncclComm_t comm, void *buff, size_t size, void **handle),
    (comm, buff, size, handle))
USE(ncclCommDeregister, ASYNC_ERROR, (const ncclComm_t comm, void *handle), (comm, handle))
USE(ncclCommWindowRegister, ASYNC_ERROR,
    (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags), (comm, buff, size, win, winFlags))
USE(ncclCommWindowDeregister, ASYNC_ERROR, (ncclComm_t comm, ncclWindow_t win), (comm, win))
USE(ncclWinGetUserPtr, ASYNC_ERROR, (ncclComm_t comm, ncclWindow_t win, void **outUserPtr), (comm, win, outUserPtr))
USE(ncclCommSuspend, ASYNC_ERROR, (ncclComm_t comm, int flags), (comm, flags))
USE(ncclCommResume, ASYNC_ERROR, (ncclComm_t comm), (comm))
USE(ncclCommMemStats, ASYNC_ERROR, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value), (comm, stat, value))
USE(ncclRedOpCreatePreMulSum, ASYNC_ERROR,
    (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm),
    (op, scalar, datatype, residence, comm))
USE(ncclRedOpDestroy, ASYNC_ERROR, (ncclRedOp_t op, ncclComm_t comm), (op, comm))

EXPORT(ncclCommGetAsyncError) ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
  struct use u;
  if (!use_begin(&u, comm, CARILLON_CALL_ASYNC_ERROR, __func__, CALLER)) {
    return u.answer;
  }
  const ncclResult_t answer = use_end(&u, REAL(ncclCommGetAsyncError)(comm, asyncError));
  if (u.comm != NULL && answer == ncclSuccess && asyncError != NULL) {
    acts_progress(u.comm, u.thread, *asyncError);
  }
  return answer;
}

/* NCCL knows nothing about a call that the guards refused, so its error text comes from the thread. */
EXPORT(ncclGetLastError) const char *ncclGetLastError(ncclComm_t comm) {
  const struct thread *thread = thread_self();
  return thread != NULL && thread->refusal[0] != '\0' ? thread->refusal : REAL(ncclGetLastError)(comm);
}

/* Defines a function that is an act on a communicator and makes none. */
#define ACT(name, call, params, args) \
  EXPORT(name) ncclResult_t name params { \
    struct act act; \
    return act_begin(&act, comm, CARILLON_CALL_##call, #name, CALLER) ? act_end(&act, REAL(name) args) \
                                                                      : act.use.answer; \
  }

ACT(ncclCommFinalize, FINALIZE, (ncclComm_t comm), (comm))
ACT(ncclCommDestroy, DESTROY, (ncclComm_t comm), (comm))
ACT(ncclCommAbort, ABORT, (ncclComm_t comm), (comm))
ACT(ncclCommRevoke, REVOKE, (ncclComm_t comm, int revokeFlags), (comm, revokeFlags))

/* Defines a function that makes one communicator without a parent. unique may be NULL. */
#define MAKE(name, call, params, args, out, ranks, rank, unique, config) \
  EXPORT(name) ncclResult_t name params { \
    struct act act; \
    uint8_t id[16]; \
    comm_root_id(id, unique); \
    act_make(&act, CARILLON_CALL_##call, CALLER); \
    act_root(&act, out, ranks, rank, id, config); \
    return act_end(&act, REAL(name) args); \
  }

MAKE(ncclCommInitRank, INIT_RANK, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank),
     (comm, nranks, commId, rank), comm, nranks, rank, &commId, NULL)
MAKE(ncclCommInitRankConfig, INIT_RANK_CONFIG,
     (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config),
     (comm, nranks, commId, rank, config), comm, nranks, rank, &commId, config)
MAKE(ncclCommInitRankScalable, INIT_RANK_SCALABLE,
     (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config),
     (newcomm, nranks, myrank, nId, commIds, config), newcomm, nranks, myrank, nId > 0 ? commIds : NULL, config)

EXPORT(ncclCommInitAll) ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
  struct act act;
  act_make(&act, CARILLON_CALL_INIT_ALL, CALLER);
  /* The unique id stays inside of NCCL, and all ranks are in this process: an id that no other call has names the
     communicator. */
  const struct {
    const void *comm;
    int64_t now;
  } call = {comm, tape_now()};
  ncclUniqueId unique = {{0}};
  uint8_t id[16];
  __builtin_memcpy(&unique, &call, sizeof call);
  comm_root_id(id, &unique);
  for (int rank = 0; comm != NULL && rank < ndev; rank++) {
    act_root(&act, &comm[rank], ndev, rank, id, NULL);
  }
  return act_end(&act, REAL(ncclCommInitAll)(comm, ndev, devlist));
}

/* Colors of children that no split uses. */
enum { SHRUNK = -2, GROWN = -3 };

EXPORT(ncclCommSplit)
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  struct act act;
  if (!act_begin(&act, comm, CARILLON_CALL_SPLIT, __func__, CALLER)) {
    return act.use.answer;
  }
  act_child(&act, newcomm, color, config);
  start(&act.use, 0, 0, -1, 0);
  return act_end(&act, REAL(ncclCommSplit)(comm, color, key, newcomm, config));
}

/* Writes which ranks a shrink leaves out, for its start on the tape: "without ranks 3,5-9", and ",..." for ranks that
   there is no room for. */
static void tell_without(char text[TAPE_MAX_TEXT], const struct comm *comm, const int *ranks, int n) {
  enum { LONGEST = sizeof ",2147483647-2147483647,..." };
  int length = snprintf(text, TAPE_MAX_TEXT, "without ranks ");
  if (comm == NULL || ranks == NULL || n >= comm->size) { /* NCCL refuses it */
    return;
  }
  for (int i = 0, last; i < n; i = last + 1) {
    for (last = i; last + 1 < n && ranks[last + 1] == ranks[last] + 1; last++) {
    }
    if (length > TAPE_MAX_TEXT - LONGEST) {
      snprintf(text + length, (size_t)(TAPE_MAX_TEXT - length), ",...");
      return;
    }
    length += snprintf(text + length, (size_t)(TAPE_MAX_TEXT - length), i > 0 ? ",%d" : "%d", ranks[i]);
    if (last > i) {
      length += snprintf(text + length, (size_t)(TAPE_MAX_TEXT - length), "-%d", ranks[last]);
    }
  }
}

EXPORT(ncclCommShrink)
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags) {
  struct act act;
  if (!act_begin(&act, comm, CARILLON_CALL_SHRINK, __func__, CALLER)) {
    return act.use.answer;
  }
  char without[TAPE_MAX_TEXT];
  tell_without(without, act.use.comm, excludeRanksList, excludeRanksCount);
  act.life.text = without;
  act_child(&act, newcomm, SHRUNK, config);
  act.life.text = NULL;
  start(&act.use, 0, 0, -1, 0);
  return act_end(&act,
                 REAL(ncclCommShrink)(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
}

/* Ranks that join have a unique id and no communicator yet, and ranks that already have one need no unique id. So all
   ranks identify the communicator by NCCL's hash of it, once it is made. */
EXPORT(ncclCommGrow)
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config) {
  struct act act;
  if (comm == NULL && uniqueId != NULL) {
    uint8_t id[16];
    comm_root_id(id, uniqueId);
    act_make(&act, CARILLON_CALL_GROW, CALLER);
    act_root(&act, newcomm, nRanks, rank, id, config);
  } else if (!act_begin(&act, comm, CARILLON_CALL_GROW, __func__, CALLER)) {
    return act.use.answer;
  } else {
    act_child(&act, newcomm, GROWN, config);
    start(&act.use, 0, 0, -1, 0);
  }
  return act_end(&act, REAL(ncclCommGrow)(comm, nRanks, uniqueId, rank, newcomm, config));
}

EXPORT(ncclGroupStart) ncclResult_t ncclGroupStart(void) {
  struct thread *thread = thread_self();
  const ncclResult_t answer = REAL(ncclGroupStart)();
  if (thread != NULL && !thread->inside && answer == ncclSuccess) {
    thread->depth++;
  }
  return answer;
}

/* Whether the thread is ending its outermost group; the end of an inner one is only counted. */
static bool outermost(struct thread *thread) {
  if (thread == NULL || thread->inside || thread->depth == 0) {
    return false;
  }
  return thread->depth == 1 || (thread->depth--, false);
}

EXPORT(ncclGroupEnd) ncclResult_t ncclGroupEnd(void) {
  struct thread *thread = thread_self();
  if (!outermost(thread)) {
    return REAL(ncclGroupEnd)();
  }
  const int64_t start = tape_now();
  acts_group_ends(thread, true);
  const ncclResult_t answer = REAL(ncclGroupEnd)();
  acts_group_ended(thread, CALLER, start, true, answer);
  return answer;
}

EXPORT(ncclGroupSimulateEnd) ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
  struct thread *thread = thread_self();
  if (!outermost(thread)) {
    return REAL(ncclGroupSimulateEnd)(simInfo);
  }
  const int64_t start = tape_now();
  acts_group_ends(thread, false);
  const ncclResult_t answer = REAL(ncclGroupSimulateEnd)(simInfo);
  acts_group_ended(thread, CALLER, start, false, answer);
  return answer;
}
