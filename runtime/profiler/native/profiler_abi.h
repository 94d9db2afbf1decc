/* Code generated from nccl-profiler-abi.tsv by go generate; DO NOT EDIT. */

/*
 * NCCL's profiler interface, versions 1 to 7, with assertions that every field has NCCL's offset. Besides the versions'
 * event descriptors there is struct profiler_event, which has the fields of all of them. Values that are numbers in old
 * versions and texts in later ones (functions, data types, algorithms, protocols) are texts in it. Fields that a
 * version doesn't have are 0.
 */
#ifndef CARILLON_PROFILER_ABI_H
#define CARILLON_PROFILER_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "profiler_names.h"

/* The types of events that a plug-in gets. A mask has a bit for each. */
enum profiler_type {
  PROFILER_GROUP = 1 << 0,
  PROFILER_COLL = 1 << 1,
  PROFILER_P2P = 1 << 2,
  PROFILER_PROXY_OP = 1 << 3,
  PROFILER_PROXY_STEP = 1 << 4,
  PROFILER_PROXY_CTRL = 1 << 5,
  PROFILER_KERNEL_CH = 1 << 6,       /* from v3 on, with the next one */
  PROFILER_NET_PLUGIN = 1 << 7,
  PROFILER_GROUP_API = 1 << 8,       /* from v5 on, with the next three */
  PROFILER_COLL_API = 1 << 9,
  PROFILER_P2P_API = 1 << 10,
  PROFILER_KERNEL_LAUNCH = 1 << 11,
  PROFILER_CE_COLL = 1 << 12,        /* from v6 on, with the next two: collectives by copy engines */
  PROFILER_CE_SYNC = 1 << 13,
  PROFILER_CE_BATCH = 1 << 14,
  PROFILER_KERNEL_PHASE = 1 << 15,   /* from v7 on */
};

/* The arguments of an event's state. Up to v3, those of a proxy operation include the number of steps. */
union profiler_args {
  struct {
    uint64_t transSize;
    int32_t steps;
  } proxyOp;
  struct {
    uint64_t transSize;
  } proxyStep;
  struct {
    int32_t appendedProxyOps;
  } proxyCtrl;
  struct {
    void *data;
  } netPlugin;
  struct {
    uint64_t pTimer;
  } kernelCh;
};

typedef void (*profiler_log)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

#define PROFILER_FUNCTIONS(DESCR)                                    \
  int (*startEvent)(void *context, void **handle, const DESCR *);    \
  int (*stopEvent)(void *handle);                                    \
  int (*recordEventState)(void *handle, int state, const void *args); \
  int (*finalize)(void *context)
#define PROFILER_INIT_V1 int (*init)(void **context, int *mask)
#define PROFILER_INIT_V2 PROFILER_INIT_V1
#define PROFILER_INIT_V3 PROFILER_INIT_V1
#define PROFILER_INIT_V4                                                                                  \
  int (*init)(void **context, int *mask, const char *name, uint64_t hash, int nodes, int size, int rank, \
              profiler_log)
#define PROFILER_INIT_V5                                                                                  \
  int (*init)(void **context, uint64_t hash, int *mask, const char *name, int nodes, int size, int rank, \
              profiler_log)
#define PROFILER_INIT_V6 PROFILER_INIT_V5
#define PROFILER_INIT_V7 PROFILER_INIT_V5

#define PROFILER_AT(VERSION, FIELD, OFFSET, SIZE)                                           \
  _Static_assert(offsetof(struct profiler_descr_##VERSION, FIELD) == (OFFSET) &&            \
                     sizeof(((struct profiler_descr_##VERSION *)0)->FIELD) == (SIZE),       \
                 #FIELD " in " #VERSION)

struct profiler_event {
  uint64_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
      void *parentGroup;
      const char *kernelVariant;
      uint8_t isSymColl;
      uint64_t userTag;
      const char *name;
      uint64_t commHash;
      uint64_t trafficBytes;
      int32_t op;
      int32_t isCollnet;
      int32_t isNvls;
    } coll;
    struct {
      const char *func;
      void *buff;
      const char *datatype;
      uint64_t count;
      int32_t peer;
      uint8_t nChannels;
      void *parentGroup;
      uint64_t userTag;
      const char *name;
      uint64_t commHash;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
    struct {
      uint8_t channelId;
      uint64_t pTimer;
    } kernelCh;
    struct {
      uint64_t id;
      void *data;
    } netPlugin;
    struct {
      uint8_t graphCaptured;
      int32_t groupDepth;
    } groupApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      int32_t root;
      void *stream;
      uint8_t graphCaptured;
      uint64_t userTag;
    } collApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      void *stream;
      uint8_t graphCaptured;
      uint64_t userTag;
    } p2pApi;
    struct {
      void *stream;
    } kernelLaunch;
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      const char *syncStrategy;
      uint8_t intraBatchSync;
      int32_t batchSize;
      int32_t numBatches;
      int32_t ceSeqNum;
      void *stream;
      uint64_t userTag;
    } ceColl;
    struct {
      uint8_t isComplete;
      int32_t nRanks;
    } ceCollSync;
    struct {
      int32_t numOps;
      uint64_t totalBytes;
      uint8_t useIntraSync;
    } ceCollBatch;
    struct {
      uint8_t channelId;
      uint8_t phaseId;
      const char *phaseName;
      uint64_t pTimer;
    } kernelPhase;
  };
};

/* Version 1. */

struct profiler_descr_v1 {
  uint8_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      const char *name;
      uint64_t commHash;
      uint64_t seqNumber;
      uint8_t func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      uint8_t datatype;
      int32_t op;
      uint64_t trafficBytes;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      uint8_t algo;
      uint8_t proto;
      int32_t isCollnet;
      int32_t isNvls;
    } coll;
    struct {
      const char *name;
      uint64_t commHash;
      uint8_t func;
      void *buff;
      uint8_t datatype;
      uint64_t count;
      int32_t peer;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
  };
};

_Static_assert(sizeof(struct profiler_descr_v1) == 120, "size in v1");
PROFILER_AT(v1, type, 0, 1);
PROFILER_AT(v1, parentObj, 8, 8);
PROFILER_AT(v1, rank, 16, 4);
PROFILER_AT(v1, coll.name, 24, 8);
PROFILER_AT(v1, coll.commHash, 32, 8);
PROFILER_AT(v1, coll.seqNumber, 40, 8);
PROFILER_AT(v1, coll.func, 48, 1);
PROFILER_AT(v1, coll.sendBuff, 56, 8);
PROFILER_AT(v1, coll.recvBuff, 64, 8);
PROFILER_AT(v1, coll.count, 72, 8);
PROFILER_AT(v1, coll.root, 80, 4);
PROFILER_AT(v1, coll.datatype, 84, 1);
PROFILER_AT(v1, coll.op, 88, 4);
PROFILER_AT(v1, coll.trafficBytes, 96, 8);
PROFILER_AT(v1, coll.nMaxChannels, 104, 1);
PROFILER_AT(v1, coll.nWarps, 105, 1);
PROFILER_AT(v1, coll.algo, 106, 1);
PROFILER_AT(v1, coll.proto, 107, 1);
PROFILER_AT(v1, coll.isCollnet, 108, 4);
PROFILER_AT(v1, coll.isNvls, 112, 4);
PROFILER_AT(v1, p2p.name, 24, 8);
PROFILER_AT(v1, p2p.commHash, 32, 8);
PROFILER_AT(v1, p2p.func, 40, 1);
PROFILER_AT(v1, p2p.buff, 48, 8);
PROFILER_AT(v1, p2p.datatype, 56, 1);
PROFILER_AT(v1, p2p.count, 64, 8);
PROFILER_AT(v1, p2p.peer, 72, 4);
PROFILER_AT(v1, proxyOp.pid, 24, 4);
PROFILER_AT(v1, proxyOp.channelId, 28, 1);
PROFILER_AT(v1, proxyOp.peer, 32, 4);
PROFILER_AT(v1, proxyOp.nSteps, 36, 4);
PROFILER_AT(v1, proxyOp.chunkSize, 40, 4);
PROFILER_AT(v1, proxyOp.isSend, 44, 4);
PROFILER_AT(v1, proxyStep.step, 24, 4);

struct profiler_v1 {
  const char *name;
  PROFILER_INIT_V1;
  PROFILER_FUNCTIONS(struct profiler_descr_v1);
};

/* Converts a descriptor to an event. */
static inline void profiler_read_v1(struct profiler_event *e, const struct profiler_descr_v1 *d) {
  e->type = d->type;
  e->parentObj = d->parentObj;
  e->rank = d->rank;
  switch (d->type) {
  case PROFILER_COLL:
    e->coll.name = d->coll.name;
    e->coll.commHash = d->coll.commHash;
    e->coll.seqNumber = d->coll.seqNumber;
    e->coll.func = profiler_func_name(d->coll.func);
    e->coll.sendBuff = d->coll.sendBuff;
    e->coll.recvBuff = d->coll.recvBuff;
    e->coll.count = d->coll.count;
    e->coll.root = d->coll.root;
    e->coll.datatype = profiler_datatype_name(d->coll.datatype);
    e->coll.op = d->coll.op;
    e->coll.trafficBytes = d->coll.trafficBytes;
    e->coll.nChannels = d->coll.nMaxChannels;
    e->coll.nWarps = d->coll.nWarps;
    e->coll.algo = profiler_algo_name(d->coll.algo);
    e->coll.proto = profiler_proto_name(d->coll.proto);
    e->coll.isCollnet = d->coll.isCollnet;
    e->coll.isNvls = d->coll.isNvls;
    e->coll.parentGroup = 0;
    e->coll.kernelVariant = 0;
    e->coll.isSymColl = 0;
    e->coll.userTag = 0;
    break;
  case PROFILER_P2P:
    e->p2p.name = d->p2p.name;
    e->p2p.commHash = d->p2p.commHash;
    e->p2p.func = profiler_func_name(d->p2p.func);
    e->p2p.buff = d->p2p.buff;
    e->p2p.datatype = profiler_datatype_name(d->p2p.datatype);
    e->p2p.count = d->p2p.count;
    e->p2p.peer = d->p2p.peer;
    e->p2p.nChannels = 0;
    e->p2p.parentGroup = 0;
    e->p2p.userTag = 0;
    break;
  case PROFILER_PROXY_OP:
    e->proxyOp.pid = d->proxyOp.pid;
    e->proxyOp.channelId = d->proxyOp.channelId;
    e->proxyOp.peer = d->proxyOp.peer;
    e->proxyOp.nSteps = d->proxyOp.nSteps;
    e->proxyOp.chunkSize = d->proxyOp.chunkSize;
    e->proxyOp.isSend = d->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    e->proxyStep.step = d->proxyStep.step;
    break;
  default:
    break;
  }
}

/* Converts an event to a descriptor. Fields that the version doesn't have are left out. */
static inline void profiler_write_v1(struct profiler_descr_v1 *d, const struct profiler_event *e) {
  memset(d, 0, sizeof *d);
  d->type = (__typeof__(d->type))e->type;
  d->parentObj = e->parentObj;
  d->rank = e->rank;
  switch (e->type) {
  case PROFILER_COLL:
    d->coll.name = e->coll.name;
    d->coll.commHash = e->coll.commHash;
    d->coll.seqNumber = e->coll.seqNumber;
    d->coll.func = profiler_func_number(e->coll.func);
    d->coll.sendBuff = e->coll.sendBuff;
    d->coll.recvBuff = e->coll.recvBuff;
    d->coll.count = e->coll.count;
    d->coll.root = e->coll.root;
    d->coll.datatype = profiler_datatype_number(e->coll.datatype);
    d->coll.op = e->coll.op;
    d->coll.trafficBytes = e->coll.trafficBytes;
    d->coll.nMaxChannels = e->coll.nChannels;
    d->coll.nWarps = e->coll.nWarps;
    d->coll.algo = profiler_algo_number(e->coll.algo);
    d->coll.proto = profiler_proto_number(e->coll.proto);
    d->coll.isCollnet = e->coll.isCollnet;
    d->coll.isNvls = e->coll.isNvls;
    break;
  case PROFILER_P2P:
    d->p2p.name = e->p2p.name;
    d->p2p.commHash = e->p2p.commHash;
    d->p2p.func = profiler_func_number(e->p2p.func);
    d->p2p.buff = e->p2p.buff;
    d->p2p.datatype = profiler_datatype_number(e->p2p.datatype);
    d->p2p.count = e->p2p.count;
    d->p2p.peer = e->p2p.peer;
    break;
  case PROFILER_PROXY_OP:
    d->proxyOp.pid = e->proxyOp.pid;
    d->proxyOp.channelId = e->proxyOp.channelId;
    d->proxyOp.peer = e->proxyOp.peer;
    d->proxyOp.nSteps = e->proxyOp.nSteps;
    d->proxyOp.chunkSize = e->proxyOp.chunkSize;
    d->proxyOp.isSend = e->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    d->proxyStep.step = e->proxyStep.step;
    break;
  default:
    break;
  }
}

/* Version 2. */

struct profiler_descr_v2 {
  uint8_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      const char *name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      uint64_t trafficBytes;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
    } coll;
    struct {
      const char *name;
      uint64_t commHash;
      const char *func;
      void *buff;
      const char *datatype;
      uint64_t count;
      int32_t peer;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
  };
};

_Static_assert(sizeof(struct profiler_descr_v2) == 128, "size in v2");
PROFILER_AT(v2, type, 0, 1);
PROFILER_AT(v2, parentObj, 8, 8);
PROFILER_AT(v2, rank, 16, 4);
PROFILER_AT(v2, coll.name, 24, 8);
PROFILER_AT(v2, coll.commHash, 32, 8);
PROFILER_AT(v2, coll.seqNumber, 40, 8);
PROFILER_AT(v2, coll.func, 48, 8);
PROFILER_AT(v2, coll.sendBuff, 56, 8);
PROFILER_AT(v2, coll.recvBuff, 64, 8);
PROFILER_AT(v2, coll.count, 72, 8);
PROFILER_AT(v2, coll.root, 80, 4);
PROFILER_AT(v2, coll.datatype, 88, 8);
PROFILER_AT(v2, coll.trafficBytes, 96, 8);
PROFILER_AT(v2, coll.nMaxChannels, 104, 1);
PROFILER_AT(v2, coll.nWarps, 105, 1);
PROFILER_AT(v2, coll.algo, 112, 8);
PROFILER_AT(v2, coll.proto, 120, 8);
PROFILER_AT(v2, p2p.name, 24, 8);
PROFILER_AT(v2, p2p.commHash, 32, 8);
PROFILER_AT(v2, p2p.func, 40, 8);
PROFILER_AT(v2, p2p.buff, 48, 8);
PROFILER_AT(v2, p2p.datatype, 56, 8);
PROFILER_AT(v2, p2p.count, 64, 8);
PROFILER_AT(v2, p2p.peer, 72, 4);
PROFILER_AT(v2, proxyOp.pid, 24, 4);
PROFILER_AT(v2, proxyOp.channelId, 28, 1);
PROFILER_AT(v2, proxyOp.peer, 32, 4);
PROFILER_AT(v2, proxyOp.nSteps, 36, 4);
PROFILER_AT(v2, proxyOp.chunkSize, 40, 4);
PROFILER_AT(v2, proxyOp.isSend, 44, 4);
PROFILER_AT(v2, proxyStep.step, 24, 4);

struct profiler_v2 {
  const char *name;
  PROFILER_INIT_V2;
  PROFILER_FUNCTIONS(struct profiler_descr_v2);
};

/* Converts a descriptor to an event. */
static inline void profiler_read_v2(struct profiler_event *e, const struct profiler_descr_v2 *d) {
  e->type = d->type;
  e->parentObj = d->parentObj;
  e->rank = d->rank;
  switch (d->type) {
  case PROFILER_COLL:
    e->coll.name = d->coll.name;
    e->coll.commHash = d->coll.commHash;
    e->coll.seqNumber = d->coll.seqNumber;
    e->coll.func = d->coll.func;
    e->coll.sendBuff = d->coll.sendBuff;
    e->coll.recvBuff = d->coll.recvBuff;
    e->coll.count = d->coll.count;
    e->coll.root = d->coll.root;
    e->coll.datatype = d->coll.datatype;
    e->coll.trafficBytes = d->coll.trafficBytes;
    e->coll.nChannels = d->coll.nMaxChannels;
    e->coll.nWarps = d->coll.nWarps;
    e->coll.algo = d->coll.algo;
    e->coll.proto = d->coll.proto;
    e->coll.parentGroup = 0;
    e->coll.kernelVariant = 0;
    e->coll.isSymColl = 0;
    e->coll.userTag = 0;
    e->coll.op = 0;
    e->coll.isCollnet = 0;
    e->coll.isNvls = 0;
    break;
  case PROFILER_P2P:
    e->p2p.name = d->p2p.name;
    e->p2p.commHash = d->p2p.commHash;
    e->p2p.func = d->p2p.func;
    e->p2p.buff = d->p2p.buff;
    e->p2p.datatype = d->p2p.datatype;
    e->p2p.count = d->p2p.count;
    e->p2p.peer = d->p2p.peer;
    e->p2p.nChannels = 0;
    e->p2p.parentGroup = 0;
    e->p2p.userTag = 0;
    break;
  case PROFILER_PROXY_OP:
    e->proxyOp.pid = d->proxyOp.pid;
    e->proxyOp.channelId = d->proxyOp.channelId;
    e->proxyOp.peer = d->proxyOp.peer;
    e->proxyOp.nSteps = d->proxyOp.nSteps;
    e->proxyOp.chunkSize = d->proxyOp.chunkSize;
    e->proxyOp.isSend = d->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    e->proxyStep.step = d->proxyStep.step;
    break;
  default:
    break;
  }
}

/* Converts an event to a descriptor. Fields that the version doesn't have are left out. */
static inline void profiler_write_v2(struct profiler_descr_v2 *d, const struct profiler_event *e) {
  memset(d, 0, sizeof *d);
  d->type = (__typeof__(d->type))e->type;
  d->parentObj = e->parentObj;
  d->rank = e->rank;
  switch (e->type) {
  case PROFILER_COLL:
    d->coll.name = e->coll.name;
    d->coll.commHash = e->coll.commHash;
    d->coll.seqNumber = e->coll.seqNumber;
    d->coll.func = e->coll.func;
    d->coll.sendBuff = e->coll.sendBuff;
    d->coll.recvBuff = e->coll.recvBuff;
    d->coll.count = e->coll.count;
    d->coll.root = e->coll.root;
    d->coll.datatype = e->coll.datatype;
    d->coll.trafficBytes = e->coll.trafficBytes;
    d->coll.nMaxChannels = e->coll.nChannels;
    d->coll.nWarps = e->coll.nWarps;
    d->coll.algo = e->coll.algo;
    d->coll.proto = e->coll.proto;
    break;
  case PROFILER_P2P:
    d->p2p.name = e->p2p.name;
    d->p2p.commHash = e->p2p.commHash;
    d->p2p.func = e->p2p.func;
    d->p2p.buff = e->p2p.buff;
    d->p2p.datatype = e->p2p.datatype;
    d->p2p.count = e->p2p.count;
    d->p2p.peer = e->p2p.peer;
    break;
  case PROFILER_PROXY_OP:
    d->proxyOp.pid = e->proxyOp.pid;
    d->proxyOp.channelId = e->proxyOp.channelId;
    d->proxyOp.peer = e->proxyOp.peer;
    d->proxyOp.nSteps = e->proxyOp.nSteps;
    d->proxyOp.chunkSize = e->proxyOp.chunkSize;
    d->proxyOp.isSend = e->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    d->proxyStep.step = e->proxyStep.step;
    break;
  default:
    break;
  }
}

/* Version 3. */

struct profiler_descr_v3 {
  uint8_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      const char *name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
    } coll;
    struct {
      const char *name;
      uint64_t commHash;
      const char *func;
      void *buff;
      const char *datatype;
      uint64_t count;
      int32_t peer;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
    struct {
      uint8_t channelId;
    } kernelCh;
    struct {
      uint64_t id;
      void *data;
    } netPlugin;
  };
};

_Static_assert(sizeof(struct profiler_descr_v3) == 120, "size in v3");
PROFILER_AT(v3, type, 0, 1);
PROFILER_AT(v3, parentObj, 8, 8);
PROFILER_AT(v3, rank, 16, 4);
PROFILER_AT(v3, coll.name, 24, 8);
PROFILER_AT(v3, coll.commHash, 32, 8);
PROFILER_AT(v3, coll.seqNumber, 40, 8);
PROFILER_AT(v3, coll.func, 48, 8);
PROFILER_AT(v3, coll.sendBuff, 56, 8);
PROFILER_AT(v3, coll.recvBuff, 64, 8);
PROFILER_AT(v3, coll.count, 72, 8);
PROFILER_AT(v3, coll.root, 80, 4);
PROFILER_AT(v3, coll.datatype, 88, 8);
PROFILER_AT(v3, coll.nMaxChannels, 96, 1);
PROFILER_AT(v3, coll.nWarps, 97, 1);
PROFILER_AT(v3, coll.algo, 104, 8);
PROFILER_AT(v3, coll.proto, 112, 8);
PROFILER_AT(v3, p2p.name, 24, 8);
PROFILER_AT(v3, p2p.commHash, 32, 8);
PROFILER_AT(v3, p2p.func, 40, 8);
PROFILER_AT(v3, p2p.buff, 48, 8);
PROFILER_AT(v3, p2p.datatype, 56, 8);
PROFILER_AT(v3, p2p.count, 64, 8);
PROFILER_AT(v3, p2p.peer, 72, 4);
PROFILER_AT(v3, proxyOp.pid, 24, 4);
PROFILER_AT(v3, proxyOp.channelId, 28, 1);
PROFILER_AT(v3, proxyOp.peer, 32, 4);
PROFILER_AT(v3, proxyOp.nSteps, 36, 4);
PROFILER_AT(v3, proxyOp.chunkSize, 40, 4);
PROFILER_AT(v3, proxyOp.isSend, 44, 4);
PROFILER_AT(v3, proxyStep.step, 24, 4);
PROFILER_AT(v3, kernelCh.channelId, 24, 1);
PROFILER_AT(v3, netPlugin.id, 24, 8);
PROFILER_AT(v3, netPlugin.data, 32, 8);

struct profiler_v3 {
  const char *name;
  PROFILER_INIT_V3;
  PROFILER_FUNCTIONS(struct profiler_descr_v3);
};

/* Converts a descriptor to an event. */
static inline void profiler_read_v3(struct profiler_event *e, const struct profiler_descr_v3 *d) {
  e->type = d->type;
  e->parentObj = d->parentObj;
  e->rank = d->rank;
  switch (d->type) {
  case PROFILER_COLL:
    e->coll.name = d->coll.name;
    e->coll.commHash = d->coll.commHash;
    e->coll.seqNumber = d->coll.seqNumber;
    e->coll.func = d->coll.func;
    e->coll.sendBuff = d->coll.sendBuff;
    e->coll.recvBuff = d->coll.recvBuff;
    e->coll.count = d->coll.count;
    e->coll.root = d->coll.root;
    e->coll.datatype = d->coll.datatype;
    e->coll.nChannels = d->coll.nMaxChannels;
    e->coll.nWarps = d->coll.nWarps;
    e->coll.algo = d->coll.algo;
    e->coll.proto = d->coll.proto;
    e->coll.parentGroup = 0;
    e->coll.kernelVariant = 0;
    e->coll.isSymColl = 0;
    e->coll.userTag = 0;
    e->coll.trafficBytes = 0;
    e->coll.op = 0;
    e->coll.isCollnet = 0;
    e->coll.isNvls = 0;
    break;
  case PROFILER_P2P:
    e->p2p.name = d->p2p.name;
    e->p2p.commHash = d->p2p.commHash;
    e->p2p.func = d->p2p.func;
    e->p2p.buff = d->p2p.buff;
    e->p2p.datatype = d->p2p.datatype;
    e->p2p.count = d->p2p.count;
    e->p2p.peer = d->p2p.peer;
    e->p2p.nChannels = 0;
    e->p2p.parentGroup = 0;
    e->p2p.userTag = 0;
    break;
  case PROFILER_PROXY_OP:
    e->proxyOp.pid = d->proxyOp.pid;
    e->proxyOp.channelId = d->proxyOp.channelId;
    e->proxyOp.peer = d->proxyOp.peer;
    e->proxyOp.nSteps = d->proxyOp.nSteps;
    e->proxyOp.chunkSize = d->proxyOp.chunkSize;
    e->proxyOp.isSend = d->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    e->proxyStep.step = d->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    e->kernelCh.channelId = d->kernelCh.channelId;
    e->kernelCh.pTimer = 0;
    break;
  case PROFILER_NET_PLUGIN:
    e->netPlugin.id = d->netPlugin.id;
    e->netPlugin.data = d->netPlugin.data;
    break;
  default:
    break;
  }
}

/* Converts an event to a descriptor. Fields that the version doesn't have are left out. */
static inline void profiler_write_v3(struct profiler_descr_v3 *d, const struct profiler_event *e) {
  memset(d, 0, sizeof *d);
  d->type = (__typeof__(d->type))e->type;
  d->parentObj = e->parentObj;
  d->rank = e->rank;
  switch (e->type) {
  case PROFILER_COLL:
    d->coll.name = e->coll.name;
    d->coll.commHash = e->coll.commHash;
    d->coll.seqNumber = e->coll.seqNumber;
    d->coll.func = e->coll.func;
    d->coll.sendBuff = e->coll.sendBuff;
    d->coll.recvBuff = e->coll.recvBuff;
    d->coll.count = e->coll.count;
    d->coll.root = e->coll.root;
    d->coll.datatype = e->coll.datatype;
    d->coll.nMaxChannels = e->coll.nChannels;
    d->coll.nWarps = e->coll.nWarps;
    d->coll.algo = e->coll.algo;
    d->coll.proto = e->coll.proto;
    break;
  case PROFILER_P2P:
    d->p2p.name = e->p2p.name;
    d->p2p.commHash = e->p2p.commHash;
    d->p2p.func = e->p2p.func;
    d->p2p.buff = e->p2p.buff;
    d->p2p.datatype = e->p2p.datatype;
    d->p2p.count = e->p2p.count;
    d->p2p.peer = e->p2p.peer;
    break;
  case PROFILER_PROXY_OP:
    d->proxyOp.pid = e->proxyOp.pid;
    d->proxyOp.channelId = e->proxyOp.channelId;
    d->proxyOp.peer = e->proxyOp.peer;
    d->proxyOp.nSteps = e->proxyOp.nSteps;
    d->proxyOp.chunkSize = e->proxyOp.chunkSize;
    d->proxyOp.isSend = e->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    d->proxyStep.step = e->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    d->kernelCh.channelId = e->kernelCh.channelId;
    break;
  case PROFILER_NET_PLUGIN:
    d->netPlugin.id = e->netPlugin.id;
    d->netPlugin.data = e->netPlugin.data;
    break;
  default:
    break;
  }
}

/* Version 4. */

struct profiler_descr_v4 {
  uint8_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
    } coll;
    struct {
      const char *func;
      void *buff;
      const char *datatype;
      uint64_t count;
      int32_t peer;
      uint8_t nChannels;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
    struct {
      uint8_t channelId;
      uint64_t pTimer;
    } kernelCh;
    struct {
      uint64_t id;
      void *data;
    } netPlugin;
  };
};

_Static_assert(sizeof(struct profiler_descr_v4) == 104, "size in v4");
PROFILER_AT(v4, type, 0, 1);
PROFILER_AT(v4, parentObj, 8, 8);
PROFILER_AT(v4, rank, 16, 4);
PROFILER_AT(v4, coll.seqNumber, 24, 8);
PROFILER_AT(v4, coll.func, 32, 8);
PROFILER_AT(v4, coll.sendBuff, 40, 8);
PROFILER_AT(v4, coll.recvBuff, 48, 8);
PROFILER_AT(v4, coll.count, 56, 8);
PROFILER_AT(v4, coll.root, 64, 4);
PROFILER_AT(v4, coll.datatype, 72, 8);
PROFILER_AT(v4, coll.nChannels, 80, 1);
PROFILER_AT(v4, coll.nWarps, 81, 1);
PROFILER_AT(v4, coll.algo, 88, 8);
PROFILER_AT(v4, coll.proto, 96, 8);
PROFILER_AT(v4, p2p.func, 24, 8);
PROFILER_AT(v4, p2p.buff, 32, 8);
PROFILER_AT(v4, p2p.datatype, 40, 8);
PROFILER_AT(v4, p2p.count, 48, 8);
PROFILER_AT(v4, p2p.peer, 56, 4);
PROFILER_AT(v4, p2p.nChannels, 60, 1);
PROFILER_AT(v4, proxyOp.pid, 24, 4);
PROFILER_AT(v4, proxyOp.channelId, 28, 1);
PROFILER_AT(v4, proxyOp.peer, 32, 4);
PROFILER_AT(v4, proxyOp.nSteps, 36, 4);
PROFILER_AT(v4, proxyOp.chunkSize, 40, 4);
PROFILER_AT(v4, proxyOp.isSend, 44, 4);
PROFILER_AT(v4, proxyStep.step, 24, 4);
PROFILER_AT(v4, kernelCh.channelId, 24, 1);
PROFILER_AT(v4, kernelCh.pTimer, 32, 8);
PROFILER_AT(v4, netPlugin.id, 24, 8);
PROFILER_AT(v4, netPlugin.data, 32, 8);

struct profiler_v4 {
  const char *name;
  PROFILER_INIT_V4;
  PROFILER_FUNCTIONS(struct profiler_descr_v4);
};

/* Converts a descriptor to an event. */
static inline void profiler_read_v4(struct profiler_event *e, const struct profiler_descr_v4 *d) {
  e->type = d->type;
  e->parentObj = d->parentObj;
  e->rank = d->rank;
  switch (d->type) {
  case PROFILER_COLL:
    e->coll.seqNumber = d->coll.seqNumber;
    e->coll.func = d->coll.func;
    e->coll.sendBuff = d->coll.sendBuff;
    e->coll.recvBuff = d->coll.recvBuff;
    e->coll.count = d->coll.count;
    e->coll.root = d->coll.root;
    e->coll.datatype = d->coll.datatype;
    e->coll.nChannels = d->coll.nChannels;
    e->coll.nWarps = d->coll.nWarps;
    e->coll.algo = d->coll.algo;
    e->coll.proto = d->coll.proto;
    e->coll.parentGroup = 0;
    e->coll.kernelVariant = 0;
    e->coll.isSymColl = 0;
    e->coll.userTag = 0;
    e->coll.name = 0;
    e->coll.commHash = 0;
    e->coll.trafficBytes = 0;
    e->coll.op = 0;
    e->coll.isCollnet = 0;
    e->coll.isNvls = 0;
    break;
  case PROFILER_P2P:
    e->p2p.func = d->p2p.func;
    e->p2p.buff = d->p2p.buff;
    e->p2p.datatype = d->p2p.datatype;
    e->p2p.count = d->p2p.count;
    e->p2p.peer = d->p2p.peer;
    e->p2p.nChannels = d->p2p.nChannels;
    e->p2p.parentGroup = 0;
    e->p2p.userTag = 0;
    e->p2p.name = 0;
    e->p2p.commHash = 0;
    break;
  case PROFILER_PROXY_OP:
    e->proxyOp.pid = d->proxyOp.pid;
    e->proxyOp.channelId = d->proxyOp.channelId;
    e->proxyOp.peer = d->proxyOp.peer;
    e->proxyOp.nSteps = d->proxyOp.nSteps;
    e->proxyOp.chunkSize = d->proxyOp.chunkSize;
    e->proxyOp.isSend = d->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    e->proxyStep.step = d->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    e->kernelCh.channelId = d->kernelCh.channelId;
    e->kernelCh.pTimer = d->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    e->netPlugin.id = d->netPlugin.id;
    e->netPlugin.data = d->netPlugin.data;
    break;
  default:
    break;
  }
}

/* Converts an event to a descriptor. Fields that the version doesn't have are left out. */
static inline void profiler_write_v4(struct profiler_descr_v4 *d, const struct profiler_event *e) {
  memset(d, 0, sizeof *d);
  d->type = (__typeof__(d->type))e->type;
  d->parentObj = e->parentObj;
  d->rank = e->rank;
  switch (e->type) {
  case PROFILER_COLL:
    d->coll.seqNumber = e->coll.seqNumber;
    d->coll.func = e->coll.func;
    d->coll.sendBuff = e->coll.sendBuff;
    d->coll.recvBuff = e->coll.recvBuff;
    d->coll.count = e->coll.count;
    d->coll.root = e->coll.root;
    d->coll.datatype = e->coll.datatype;
    d->coll.nChannels = e->coll.nChannels;
    d->coll.nWarps = e->coll.nWarps;
    d->coll.algo = e->coll.algo;
    d->coll.proto = e->coll.proto;
    break;
  case PROFILER_P2P:
    d->p2p.func = e->p2p.func;
    d->p2p.buff = e->p2p.buff;
    d->p2p.datatype = e->p2p.datatype;
    d->p2p.count = e->p2p.count;
    d->p2p.peer = e->p2p.peer;
    d->p2p.nChannels = e->p2p.nChannels;
    break;
  case PROFILER_PROXY_OP:
    d->proxyOp.pid = e->proxyOp.pid;
    d->proxyOp.channelId = e->proxyOp.channelId;
    d->proxyOp.peer = e->proxyOp.peer;
    d->proxyOp.nSteps = e->proxyOp.nSteps;
    d->proxyOp.chunkSize = e->proxyOp.chunkSize;
    d->proxyOp.isSend = e->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    d->proxyStep.step = e->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    d->kernelCh.channelId = e->kernelCh.channelId;
    d->kernelCh.pTimer = e->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    d->netPlugin.id = e->netPlugin.id;
    d->netPlugin.data = e->netPlugin.data;
    break;
  default:
    break;
  }
}

/* Version 5. */

struct profiler_descr_v5 {
  uint64_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      uint8_t graphCaptured;
      int32_t groupDepth;
    } groupApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      int32_t root;
      void *stream;
      uint8_t graphCaptured;
    } collApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      void *stream;
      uint8_t graphCaptured;
    } p2pApi;
    struct {
      void *stream;
    } kernelLaunch;
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
      void *parentGroup;
    } coll;
    struct {
      const char *func;
      void *buff;
      const char *datatype;
      uint64_t count;
      int32_t peer;
      uint8_t nChannels;
      void *parentGroup;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
    struct {
      uint8_t channelId;
      uint64_t pTimer;
    } kernelCh;
    struct {
      uint64_t id;
      void *data;
    } netPlugin;
  };
};

_Static_assert(sizeof(struct profiler_descr_v5) == 112, "size in v5");
PROFILER_AT(v5, type, 0, 8);
PROFILER_AT(v5, parentObj, 8, 8);
PROFILER_AT(v5, rank, 16, 4);
PROFILER_AT(v5, groupApi.graphCaptured, 24, 1);
PROFILER_AT(v5, groupApi.groupDepth, 28, 4);
PROFILER_AT(v5, collApi.func, 24, 8);
PROFILER_AT(v5, collApi.count, 32, 8);
PROFILER_AT(v5, collApi.datatype, 40, 8);
PROFILER_AT(v5, collApi.root, 48, 4);
PROFILER_AT(v5, collApi.stream, 56, 8);
PROFILER_AT(v5, collApi.graphCaptured, 64, 1);
PROFILER_AT(v5, p2pApi.func, 24, 8);
PROFILER_AT(v5, p2pApi.count, 32, 8);
PROFILER_AT(v5, p2pApi.datatype, 40, 8);
PROFILER_AT(v5, p2pApi.stream, 48, 8);
PROFILER_AT(v5, p2pApi.graphCaptured, 56, 1);
PROFILER_AT(v5, kernelLaunch.stream, 24, 8);
PROFILER_AT(v5, coll.seqNumber, 24, 8);
PROFILER_AT(v5, coll.func, 32, 8);
PROFILER_AT(v5, coll.sendBuff, 40, 8);
PROFILER_AT(v5, coll.recvBuff, 48, 8);
PROFILER_AT(v5, coll.count, 56, 8);
PROFILER_AT(v5, coll.root, 64, 4);
PROFILER_AT(v5, coll.datatype, 72, 8);
PROFILER_AT(v5, coll.nChannels, 80, 1);
PROFILER_AT(v5, coll.nWarps, 81, 1);
PROFILER_AT(v5, coll.algo, 88, 8);
PROFILER_AT(v5, coll.proto, 96, 8);
PROFILER_AT(v5, coll.parentGroup, 104, 8);
PROFILER_AT(v5, p2p.func, 24, 8);
PROFILER_AT(v5, p2p.buff, 32, 8);
PROFILER_AT(v5, p2p.datatype, 40, 8);
PROFILER_AT(v5, p2p.count, 48, 8);
PROFILER_AT(v5, p2p.peer, 56, 4);
PROFILER_AT(v5, p2p.nChannels, 60, 1);
PROFILER_AT(v5, p2p.parentGroup, 64, 8);
PROFILER_AT(v5, proxyOp.pid, 24, 4);
PROFILER_AT(v5, proxyOp.channelId, 28, 1);
PROFILER_AT(v5, proxyOp.peer, 32, 4);
PROFILER_AT(v5, proxyOp.nSteps, 36, 4);
PROFILER_AT(v5, proxyOp.chunkSize, 40, 4);
PROFILER_AT(v5, proxyOp.isSend, 44, 4);
PROFILER_AT(v5, proxyStep.step, 24, 4);
PROFILER_AT(v5, kernelCh.channelId, 24, 1);
PROFILER_AT(v5, kernelCh.pTimer, 32, 8);
PROFILER_AT(v5, netPlugin.id, 24, 8);
PROFILER_AT(v5, netPlugin.data, 32, 8);

struct profiler_v5 {
  const char *name;
  PROFILER_INIT_V5;
  PROFILER_FUNCTIONS(struct profiler_descr_v5);
};

/* Converts a descriptor to an event. */
static inline void profiler_read_v5(struct profiler_event *e, const struct profiler_descr_v5 *d) {
  e->type = d->type;
  e->parentObj = d->parentObj;
  e->rank = d->rank;
  switch (d->type) {
  case PROFILER_GROUP_API:
    e->groupApi.graphCaptured = d->groupApi.graphCaptured;
    e->groupApi.groupDepth = d->groupApi.groupDepth;
    break;
  case PROFILER_COLL_API:
    e->collApi.func = d->collApi.func;
    e->collApi.count = d->collApi.count;
    e->collApi.datatype = d->collApi.datatype;
    e->collApi.root = d->collApi.root;
    e->collApi.stream = d->collApi.stream;
    e->collApi.graphCaptured = d->collApi.graphCaptured;
    e->collApi.userTag = 0;
    break;
  case PROFILER_P2P_API:
    e->p2pApi.func = d->p2pApi.func;
    e->p2pApi.count = d->p2pApi.count;
    e->p2pApi.datatype = d->p2pApi.datatype;
    e->p2pApi.stream = d->p2pApi.stream;
    e->p2pApi.graphCaptured = d->p2pApi.graphCaptured;
    e->p2pApi.userTag = 0;
    break;
  case PROFILER_KERNEL_LAUNCH:
    e->kernelLaunch.stream = d->kernelLaunch.stream;
    break;
  case PROFILER_COLL:
    e->coll.seqNumber = d->coll.seqNumber;
    e->coll.func = d->coll.func;
    e->coll.sendBuff = d->coll.sendBuff;
    e->coll.recvBuff = d->coll.recvBuff;
    e->coll.count = d->coll.count;
    e->coll.root = d->coll.root;
    e->coll.datatype = d->coll.datatype;
    e->coll.nChannels = d->coll.nChannels;
    e->coll.nWarps = d->coll.nWarps;
    e->coll.algo = d->coll.algo;
    e->coll.proto = d->coll.proto;
    e->coll.parentGroup = d->coll.parentGroup;
    e->coll.kernelVariant = 0;
    e->coll.isSymColl = 0;
    e->coll.userTag = 0;
    e->coll.name = 0;
    e->coll.commHash = 0;
    e->coll.trafficBytes = 0;
    e->coll.op = 0;
    e->coll.isCollnet = 0;
    e->coll.isNvls = 0;
    break;
  case PROFILER_P2P:
    e->p2p.func = d->p2p.func;
    e->p2p.buff = d->p2p.buff;
    e->p2p.datatype = d->p2p.datatype;
    e->p2p.count = d->p2p.count;
    e->p2p.peer = d->p2p.peer;
    e->p2p.nChannels = d->p2p.nChannels;
    e->p2p.parentGroup = d->p2p.parentGroup;
    e->p2p.userTag = 0;
    e->p2p.name = 0;
    e->p2p.commHash = 0;
    break;
  case PROFILER_PROXY_OP:
    e->proxyOp.pid = d->proxyOp.pid;
    e->proxyOp.channelId = d->proxyOp.channelId;
    e->proxyOp.peer = d->proxyOp.peer;
    e->proxyOp.nSteps = d->proxyOp.nSteps;
    e->proxyOp.chunkSize = d->proxyOp.chunkSize;
    e->proxyOp.isSend = d->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    e->proxyStep.step = d->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    e->kernelCh.channelId = d->kernelCh.channelId;
    e->kernelCh.pTimer = d->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    e->netPlugin.id = d->netPlugin.id;
    e->netPlugin.data = d->netPlugin.data;
    break;
  default:
    break;
  }
}

/* Converts an event to a descriptor. Fields that the version doesn't have are left out. */
static inline void profiler_write_v5(struct profiler_descr_v5 *d, const struct profiler_event *e) {
  memset(d, 0, sizeof *d);
  d->type = (__typeof__(d->type))e->type;
  d->parentObj = e->parentObj;
  d->rank = e->rank;
  switch (e->type) {
  case PROFILER_GROUP_API:
    d->groupApi.graphCaptured = e->groupApi.graphCaptured;
    d->groupApi.groupDepth = e->groupApi.groupDepth;
    break;
  case PROFILER_COLL_API:
    d->collApi.func = e->collApi.func;
    d->collApi.count = e->collApi.count;
    d->collApi.datatype = e->collApi.datatype;
    d->collApi.root = e->collApi.root;
    d->collApi.stream = e->collApi.stream;
    d->collApi.graphCaptured = e->collApi.graphCaptured;
    break;
  case PROFILER_P2P_API:
    d->p2pApi.func = e->p2pApi.func;
    d->p2pApi.count = e->p2pApi.count;
    d->p2pApi.datatype = e->p2pApi.datatype;
    d->p2pApi.stream = e->p2pApi.stream;
    d->p2pApi.graphCaptured = e->p2pApi.graphCaptured;
    break;
  case PROFILER_KERNEL_LAUNCH:
    d->kernelLaunch.stream = e->kernelLaunch.stream;
    break;
  case PROFILER_COLL:
    d->coll.seqNumber = e->coll.seqNumber;
    d->coll.func = e->coll.func;
    d->coll.sendBuff = e->coll.sendBuff;
    d->coll.recvBuff = e->coll.recvBuff;
    d->coll.count = e->coll.count;
    d->coll.root = e->coll.root;
    d->coll.datatype = e->coll.datatype;
    d->coll.nChannels = e->coll.nChannels;
    d->coll.nWarps = e->coll.nWarps;
    d->coll.algo = e->coll.algo;
    d->coll.proto = e->coll.proto;
    d->coll.parentGroup = e->coll.parentGroup;
    break;
  case PROFILER_P2P:
    d->p2p.func = e->p2p.func;
    d->p2p.buff = e->p2p.buff;
    d->p2p.datatype = e->p2p.datatype;
    d->p2p.count = e->p2p.count;
    d->p2p.peer = e->p2p.peer;
    d->p2p.nChannels = e->p2p.nChannels;
    d->p2p.parentGroup = e->p2p.parentGroup;
    break;
  case PROFILER_PROXY_OP:
    d->proxyOp.pid = e->proxyOp.pid;
    d->proxyOp.channelId = e->proxyOp.channelId;
    d->proxyOp.peer = e->proxyOp.peer;
    d->proxyOp.nSteps = e->proxyOp.nSteps;
    d->proxyOp.chunkSize = e->proxyOp.chunkSize;
    d->proxyOp.isSend = e->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    d->proxyStep.step = e->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    d->kernelCh.channelId = e->kernelCh.channelId;
    d->kernelCh.pTimer = e->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    d->netPlugin.id = e->netPlugin.id;
    d->netPlugin.data = e->netPlugin.data;
    break;
  default:
    break;
  }
}

/* Version 6. */

struct profiler_descr_v6 {
  uint64_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      uint8_t graphCaptured;
      int32_t groupDepth;
    } groupApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      int32_t root;
      void *stream;
      uint8_t graphCaptured;
    } collApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      void *stream;
      uint8_t graphCaptured;
    } p2pApi;
    struct {
      void *stream;
    } kernelLaunch;
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
      void *parentGroup;
    } coll;
    struct {
      const char *func;
      void *buff;
      const char *datatype;
      uint64_t count;
      int32_t peer;
      uint8_t nChannels;
      void *parentGroup;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
    struct {
      uint8_t channelId;
      uint64_t pTimer;
    } kernelCh;
    struct {
      uint64_t id;
      void *data;
    } netPlugin;
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      const char *syncStrategy;
      uint8_t intraBatchSync;
      int32_t batchSize;
      int32_t numBatches;
      int32_t ceSeqNum;
      void *stream;
    } ceColl;
    struct {
      uint8_t isComplete;
      int32_t nRanks;
    } ceCollSync;
    struct {
      int32_t numOps;
      uint64_t totalBytes;
      uint8_t useIntraSync;
    } ceCollBatch;
  };
};

_Static_assert(sizeof(struct profiler_descr_v6) == 112, "size in v6");
PROFILER_AT(v6, type, 0, 8);
PROFILER_AT(v6, parentObj, 8, 8);
PROFILER_AT(v6, rank, 16, 4);
PROFILER_AT(v6, groupApi.graphCaptured, 24, 1);
PROFILER_AT(v6, groupApi.groupDepth, 28, 4);
PROFILER_AT(v6, collApi.func, 24, 8);
PROFILER_AT(v6, collApi.count, 32, 8);
PROFILER_AT(v6, collApi.datatype, 40, 8);
PROFILER_AT(v6, collApi.root, 48, 4);
PROFILER_AT(v6, collApi.stream, 56, 8);
PROFILER_AT(v6, collApi.graphCaptured, 64, 1);
PROFILER_AT(v6, p2pApi.func, 24, 8);
PROFILER_AT(v6, p2pApi.count, 32, 8);
PROFILER_AT(v6, p2pApi.datatype, 40, 8);
PROFILER_AT(v6, p2pApi.stream, 48, 8);
PROFILER_AT(v6, p2pApi.graphCaptured, 56, 1);
PROFILER_AT(v6, kernelLaunch.stream, 24, 8);
PROFILER_AT(v6, coll.seqNumber, 24, 8);
PROFILER_AT(v6, coll.func, 32, 8);
PROFILER_AT(v6, coll.sendBuff, 40, 8);
PROFILER_AT(v6, coll.recvBuff, 48, 8);
PROFILER_AT(v6, coll.count, 56, 8);
PROFILER_AT(v6, coll.root, 64, 4);
PROFILER_AT(v6, coll.datatype, 72, 8);
PROFILER_AT(v6, coll.nChannels, 80, 1);
PROFILER_AT(v6, coll.nWarps, 81, 1);
PROFILER_AT(v6, coll.algo, 88, 8);
PROFILER_AT(v6, coll.proto, 96, 8);
PROFILER_AT(v6, coll.parentGroup, 104, 8);
PROFILER_AT(v6, p2p.func, 24, 8);
PROFILER_AT(v6, p2p.buff, 32, 8);
PROFILER_AT(v6, p2p.datatype, 40, 8);
PROFILER_AT(v6, p2p.count, 48, 8);
PROFILER_AT(v6, p2p.peer, 56, 4);
PROFILER_AT(v6, p2p.nChannels, 60, 1);
PROFILER_AT(v6, p2p.parentGroup, 64, 8);
PROFILER_AT(v6, proxyOp.pid, 24, 4);
PROFILER_AT(v6, proxyOp.channelId, 28, 1);
PROFILER_AT(v6, proxyOp.peer, 32, 4);
PROFILER_AT(v6, proxyOp.nSteps, 36, 4);
PROFILER_AT(v6, proxyOp.chunkSize, 40, 4);
PROFILER_AT(v6, proxyOp.isSend, 44, 4);
PROFILER_AT(v6, proxyStep.step, 24, 4);
PROFILER_AT(v6, kernelCh.channelId, 24, 1);
PROFILER_AT(v6, kernelCh.pTimer, 32, 8);
PROFILER_AT(v6, netPlugin.id, 24, 8);
PROFILER_AT(v6, netPlugin.data, 32, 8);
PROFILER_AT(v6, ceColl.seqNumber, 24, 8);
PROFILER_AT(v6, ceColl.func, 32, 8);
PROFILER_AT(v6, ceColl.sendBuff, 40, 8);
PROFILER_AT(v6, ceColl.recvBuff, 48, 8);
PROFILER_AT(v6, ceColl.count, 56, 8);
PROFILER_AT(v6, ceColl.root, 64, 4);
PROFILER_AT(v6, ceColl.datatype, 72, 8);
PROFILER_AT(v6, ceColl.syncStrategy, 80, 8);
PROFILER_AT(v6, ceColl.intraBatchSync, 88, 1);
PROFILER_AT(v6, ceColl.batchSize, 92, 4);
PROFILER_AT(v6, ceColl.numBatches, 96, 4);
PROFILER_AT(v6, ceColl.ceSeqNum, 100, 4);
PROFILER_AT(v6, ceColl.stream, 104, 8);
PROFILER_AT(v6, ceCollSync.isComplete, 24, 1);
PROFILER_AT(v6, ceCollSync.nRanks, 28, 4);
PROFILER_AT(v6, ceCollBatch.numOps, 24, 4);
PROFILER_AT(v6, ceCollBatch.totalBytes, 32, 8);
PROFILER_AT(v6, ceCollBatch.useIntraSync, 40, 1);

struct profiler_v6 {
  const char *name;
  PROFILER_INIT_V6;
  PROFILER_FUNCTIONS(struct profiler_descr_v6);
};

/* Converts a descriptor to an event. */
static inline void profiler_read_v6(struct profiler_event *e, const struct profiler_descr_v6 *d) {
  e->type = d->type;
  e->parentObj = d->parentObj;
  e->rank = d->rank;
  switch (d->type) {
  case PROFILER_GROUP_API:
    e->groupApi.graphCaptured = d->groupApi.graphCaptured;
    e->groupApi.groupDepth = d->groupApi.groupDepth;
    break;
  case PROFILER_COLL_API:
    e->collApi.func = d->collApi.func;
    e->collApi.count = d->collApi.count;
    e->collApi.datatype = d->collApi.datatype;
    e->collApi.root = d->collApi.root;
    e->collApi.stream = d->collApi.stream;
    e->collApi.graphCaptured = d->collApi.graphCaptured;
    e->collApi.userTag = 0;
    break;
  case PROFILER_P2P_API:
    e->p2pApi.func = d->p2pApi.func;
    e->p2pApi.count = d->p2pApi.count;
    e->p2pApi.datatype = d->p2pApi.datatype;
    e->p2pApi.stream = d->p2pApi.stream;
    e->p2pApi.graphCaptured = d->p2pApi.graphCaptured;
    e->p2pApi.userTag = 0;
    break;
  case PROFILER_KERNEL_LAUNCH:
    e->kernelLaunch.stream = d->kernelLaunch.stream;
    break;
  case PROFILER_COLL:
    e->coll.seqNumber = d->coll.seqNumber;
    e->coll.func = d->coll.func;
    e->coll.sendBuff = d->coll.sendBuff;
    e->coll.recvBuff = d->coll.recvBuff;
    e->coll.count = d->coll.count;
    e->coll.root = d->coll.root;
    e->coll.datatype = d->coll.datatype;
    e->coll.nChannels = d->coll.nChannels;
    e->coll.nWarps = d->coll.nWarps;
    e->coll.algo = d->coll.algo;
    e->coll.proto = d->coll.proto;
    e->coll.parentGroup = d->coll.parentGroup;
    e->coll.kernelVariant = 0;
    e->coll.isSymColl = 0;
    e->coll.userTag = 0;
    e->coll.name = 0;
    e->coll.commHash = 0;
    e->coll.trafficBytes = 0;
    e->coll.op = 0;
    e->coll.isCollnet = 0;
    e->coll.isNvls = 0;
    break;
  case PROFILER_P2P:
    e->p2p.func = d->p2p.func;
    e->p2p.buff = d->p2p.buff;
    e->p2p.datatype = d->p2p.datatype;
    e->p2p.count = d->p2p.count;
    e->p2p.peer = d->p2p.peer;
    e->p2p.nChannels = d->p2p.nChannels;
    e->p2p.parentGroup = d->p2p.parentGroup;
    e->p2p.userTag = 0;
    e->p2p.name = 0;
    e->p2p.commHash = 0;
    break;
  case PROFILER_PROXY_OP:
    e->proxyOp.pid = d->proxyOp.pid;
    e->proxyOp.channelId = d->proxyOp.channelId;
    e->proxyOp.peer = d->proxyOp.peer;
    e->proxyOp.nSteps = d->proxyOp.nSteps;
    e->proxyOp.chunkSize = d->proxyOp.chunkSize;
    e->proxyOp.isSend = d->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    e->proxyStep.step = d->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    e->kernelCh.channelId = d->kernelCh.channelId;
    e->kernelCh.pTimer = d->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    e->netPlugin.id = d->netPlugin.id;
    e->netPlugin.data = d->netPlugin.data;
    break;
  case PROFILER_CE_COLL:
    e->ceColl.seqNumber = d->ceColl.seqNumber;
    e->ceColl.func = d->ceColl.func;
    e->ceColl.sendBuff = d->ceColl.sendBuff;
    e->ceColl.recvBuff = d->ceColl.recvBuff;
    e->ceColl.count = d->ceColl.count;
    e->ceColl.root = d->ceColl.root;
    e->ceColl.datatype = d->ceColl.datatype;
    e->ceColl.syncStrategy = d->ceColl.syncStrategy;
    e->ceColl.intraBatchSync = d->ceColl.intraBatchSync;
    e->ceColl.batchSize = d->ceColl.batchSize;
    e->ceColl.numBatches = d->ceColl.numBatches;
    e->ceColl.ceSeqNum = d->ceColl.ceSeqNum;
    e->ceColl.stream = d->ceColl.stream;
    e->ceColl.userTag = 0;
    break;
  case PROFILER_CE_SYNC:
    e->ceCollSync.isComplete = d->ceCollSync.isComplete;
    e->ceCollSync.nRanks = d->ceCollSync.nRanks;
    break;
  case PROFILER_CE_BATCH:
    e->ceCollBatch.numOps = d->ceCollBatch.numOps;
    e->ceCollBatch.totalBytes = d->ceCollBatch.totalBytes;
    e->ceCollBatch.useIntraSync = d->ceCollBatch.useIntraSync;
    break;
  default:
    break;
  }
}

/* Converts an event to a descriptor. Fields that the version doesn't have are left out. */
static inline void profiler_write_v6(struct profiler_descr_v6 *d, const struct profiler_event *e) {
  memset(d, 0, sizeof *d);
  d->type = (__typeof__(d->type))e->type;
  d->parentObj = e->parentObj;
  d->rank = e->rank;
  switch (e->type) {
  case PROFILER_GROUP_API:
    d->groupApi.graphCaptured = e->groupApi.graphCaptured;
    d->groupApi.groupDepth = e->groupApi.groupDepth;
    break;
  case PROFILER_COLL_API:
    d->collApi.func = e->collApi.func;
    d->collApi.count = e->collApi.count;
    d->collApi.datatype = e->collApi.datatype;
    d->collApi.root = e->collApi.root;
    d->collApi.stream = e->collApi.stream;
    d->collApi.graphCaptured = e->collApi.graphCaptured;
    break;
  case PROFILER_P2P_API:
    d->p2pApi.func = e->p2pApi.func;
    d->p2pApi.count = e->p2pApi.count;
    d->p2pApi.datatype = e->p2pApi.datatype;
    d->p2pApi.stream = e->p2pApi.stream;
    d->p2pApi.graphCaptured = e->p2pApi.graphCaptured;
    break;
  case PROFILER_KERNEL_LAUNCH:
    d->kernelLaunch.stream = e->kernelLaunch.stream;
    break;
  case PROFILER_COLL:
    d->coll.seqNumber = e->coll.seqNumber;
    d->coll.func = e->coll.func;
    d->coll.sendBuff = e->coll.sendBuff;
    d->coll.recvBuff = e->coll.recvBuff;
    d->coll.count = e->coll.count;
    d->coll.root = e->coll.root;
    d->coll.datatype = e->coll.datatype;
    d->coll.nChannels = e->coll.nChannels;
    d->coll.nWarps = e->coll.nWarps;
    d->coll.algo = e->coll.algo;
    d->coll.proto = e->coll.proto;
    d->coll.parentGroup = e->coll.parentGroup;
    break;
  case PROFILER_P2P:
    d->p2p.func = e->p2p.func;
    d->p2p.buff = e->p2p.buff;
    d->p2p.datatype = e->p2p.datatype;
    d->p2p.count = e->p2p.count;
    d->p2p.peer = e->p2p.peer;
    d->p2p.nChannels = e->p2p.nChannels;
    d->p2p.parentGroup = e->p2p.parentGroup;
    break;
  case PROFILER_PROXY_OP:
    d->proxyOp.pid = e->proxyOp.pid;
    d->proxyOp.channelId = e->proxyOp.channelId;
    d->proxyOp.peer = e->proxyOp.peer;
    d->proxyOp.nSteps = e->proxyOp.nSteps;
    d->proxyOp.chunkSize = e->proxyOp.chunkSize;
    d->proxyOp.isSend = e->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    d->proxyStep.step = e->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    d->kernelCh.channelId = e->kernelCh.channelId;
    d->kernelCh.pTimer = e->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    d->netPlugin.id = e->netPlugin.id;
    d->netPlugin.data = e->netPlugin.data;
    break;
  case PROFILER_CE_COLL:
    d->ceColl.seqNumber = e->ceColl.seqNumber;
    d->ceColl.func = e->ceColl.func;
    d->ceColl.sendBuff = e->ceColl.sendBuff;
    d->ceColl.recvBuff = e->ceColl.recvBuff;
    d->ceColl.count = e->ceColl.count;
    d->ceColl.root = e->ceColl.root;
    d->ceColl.datatype = e->ceColl.datatype;
    d->ceColl.syncStrategy = e->ceColl.syncStrategy;
    d->ceColl.intraBatchSync = e->ceColl.intraBatchSync;
    d->ceColl.batchSize = e->ceColl.batchSize;
    d->ceColl.numBatches = e->ceColl.numBatches;
    d->ceColl.ceSeqNum = e->ceColl.ceSeqNum;
    d->ceColl.stream = e->ceColl.stream;
    break;
  case PROFILER_CE_SYNC:
    d->ceCollSync.isComplete = e->ceCollSync.isComplete;
    d->ceCollSync.nRanks = e->ceCollSync.nRanks;
    break;
  case PROFILER_CE_BATCH:
    d->ceCollBatch.numOps = e->ceCollBatch.numOps;
    d->ceCollBatch.totalBytes = e->ceCollBatch.totalBytes;
    d->ceCollBatch.useIntraSync = e->ceCollBatch.useIntraSync;
    break;
  default:
    break;
  }
}

/* Version 7. */

struct profiler_descr_v7 {
  uint64_t type;
  void *parentObj;
  int32_t rank;
  union {
    struct {
      uint8_t graphCaptured;
      int32_t groupDepth;
    } groupApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      int32_t root;
      void *stream;
      uint8_t graphCaptured;
      uint64_t userTag;
    } collApi;
    struct {
      const char *func;
      uint64_t count;
      const char *datatype;
      void *stream;
      uint8_t graphCaptured;
      uint64_t userTag;
    } p2pApi;
    struct {
      void *stream;
    } kernelLaunch;
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      uint8_t nChannels;
      uint8_t nWarps;
      const char *algo;
      const char *proto;
      void *parentGroup;
      const char *kernelVariant;
      uint8_t isSymColl;
      uint64_t userTag;
    } coll;
    struct {
      const char *func;
      void *buff;
      const char *datatype;
      uint64_t count;
      int32_t peer;
      uint8_t nChannels;
      void *parentGroup;
      uint64_t userTag;
    } p2p;
    struct {
      int32_t pid;
      uint8_t channelId;
      int32_t peer;
      int32_t nSteps;
      int32_t chunkSize;
      int32_t isSend;
    } proxyOp;
    struct {
      int32_t step;
    } proxyStep;
    struct {
      uint8_t channelId;
      uint64_t pTimer;
    } kernelCh;
    struct {
      uint64_t id;
      void *data;
    } netPlugin;
    struct {
      uint64_t seqNumber;
      const char *func;
      void *sendBuff;
      void *recvBuff;
      uint64_t count;
      int32_t root;
      const char *datatype;
      const char *syncStrategy;
      uint8_t intraBatchSync;
      int32_t batchSize;
      int32_t numBatches;
      int32_t ceSeqNum;
      void *stream;
      uint64_t userTag;
    } ceColl;
    struct {
      uint8_t isComplete;
      int32_t nRanks;
    } ceCollSync;
    struct {
      int32_t numOps;
      uint64_t totalBytes;
      uint8_t useIntraSync;
    } ceCollBatch;
    struct {
      uint8_t channelId;
      uint8_t phaseId;
      const char *phaseName;
      uint64_t pTimer;
    } kernelPhase;
  };
};

_Static_assert(sizeof(struct profiler_descr_v7) == 136, "size in v7");
PROFILER_AT(v7, type, 0, 8);
PROFILER_AT(v7, parentObj, 8, 8);
PROFILER_AT(v7, rank, 16, 4);
PROFILER_AT(v7, groupApi.graphCaptured, 24, 1);
PROFILER_AT(v7, groupApi.groupDepth, 28, 4);
PROFILER_AT(v7, collApi.func, 24, 8);
PROFILER_AT(v7, collApi.count, 32, 8);
PROFILER_AT(v7, collApi.datatype, 40, 8);
PROFILER_AT(v7, collApi.root, 48, 4);
PROFILER_AT(v7, collApi.stream, 56, 8);
PROFILER_AT(v7, collApi.graphCaptured, 64, 1);
PROFILER_AT(v7, collApi.userTag, 72, 8);
PROFILER_AT(v7, p2pApi.func, 24, 8);
PROFILER_AT(v7, p2pApi.count, 32, 8);
PROFILER_AT(v7, p2pApi.datatype, 40, 8);
PROFILER_AT(v7, p2pApi.stream, 48, 8);
PROFILER_AT(v7, p2pApi.graphCaptured, 56, 1);
PROFILER_AT(v7, p2pApi.userTag, 64, 8);
PROFILER_AT(v7, kernelLaunch.stream, 24, 8);
PROFILER_AT(v7, coll.seqNumber, 24, 8);
PROFILER_AT(v7, coll.func, 32, 8);
PROFILER_AT(v7, coll.sendBuff, 40, 8);
PROFILER_AT(v7, coll.recvBuff, 48, 8);
PROFILER_AT(v7, coll.count, 56, 8);
PROFILER_AT(v7, coll.root, 64, 4);
PROFILER_AT(v7, coll.datatype, 72, 8);
PROFILER_AT(v7, coll.nChannels, 80, 1);
PROFILER_AT(v7, coll.nWarps, 81, 1);
PROFILER_AT(v7, coll.algo, 88, 8);
PROFILER_AT(v7, coll.proto, 96, 8);
PROFILER_AT(v7, coll.parentGroup, 104, 8);
PROFILER_AT(v7, coll.kernelVariant, 112, 8);
PROFILER_AT(v7, coll.isSymColl, 120, 1);
PROFILER_AT(v7, coll.userTag, 128, 8);
PROFILER_AT(v7, p2p.func, 24, 8);
PROFILER_AT(v7, p2p.buff, 32, 8);
PROFILER_AT(v7, p2p.datatype, 40, 8);
PROFILER_AT(v7, p2p.count, 48, 8);
PROFILER_AT(v7, p2p.peer, 56, 4);
PROFILER_AT(v7, p2p.nChannels, 60, 1);
PROFILER_AT(v7, p2p.parentGroup, 64, 8);
PROFILER_AT(v7, p2p.userTag, 72, 8);
PROFILER_AT(v7, proxyOp.pid, 24, 4);
PROFILER_AT(v7, proxyOp.channelId, 28, 1);
PROFILER_AT(v7, proxyOp.peer, 32, 4);
PROFILER_AT(v7, proxyOp.nSteps, 36, 4);
PROFILER_AT(v7, proxyOp.chunkSize, 40, 4);
PROFILER_AT(v7, proxyOp.isSend, 44, 4);
PROFILER_AT(v7, proxyStep.step, 24, 4);
PROFILER_AT(v7, kernelCh.channelId, 24, 1);
PROFILER_AT(v7, kernelCh.pTimer, 32, 8);
PROFILER_AT(v7, netPlugin.id, 24, 8);
PROFILER_AT(v7, netPlugin.data, 32, 8);
PROFILER_AT(v7, ceColl.seqNumber, 24, 8);
PROFILER_AT(v7, ceColl.func, 32, 8);
PROFILER_AT(v7, ceColl.sendBuff, 40, 8);
PROFILER_AT(v7, ceColl.recvBuff, 48, 8);
PROFILER_AT(v7, ceColl.count, 56, 8);
PROFILER_AT(v7, ceColl.root, 64, 4);
PROFILER_AT(v7, ceColl.datatype, 72, 8);
PROFILER_AT(v7, ceColl.syncStrategy, 80, 8);
PROFILER_AT(v7, ceColl.intraBatchSync, 88, 1);
PROFILER_AT(v7, ceColl.batchSize, 92, 4);
PROFILER_AT(v7, ceColl.numBatches, 96, 4);
PROFILER_AT(v7, ceColl.ceSeqNum, 100, 4);
PROFILER_AT(v7, ceColl.stream, 104, 8);
PROFILER_AT(v7, ceColl.userTag, 112, 8);
PROFILER_AT(v7, ceCollSync.isComplete, 24, 1);
PROFILER_AT(v7, ceCollSync.nRanks, 28, 4);
PROFILER_AT(v7, ceCollBatch.numOps, 24, 4);
PROFILER_AT(v7, ceCollBatch.totalBytes, 32, 8);
PROFILER_AT(v7, ceCollBatch.useIntraSync, 40, 1);
PROFILER_AT(v7, kernelPhase.channelId, 24, 1);
PROFILER_AT(v7, kernelPhase.phaseId, 25, 1);
PROFILER_AT(v7, kernelPhase.phaseName, 32, 8);
PROFILER_AT(v7, kernelPhase.pTimer, 40, 8);

struct profiler_v7 {
  const char *name;
  PROFILER_INIT_V7;
  PROFILER_FUNCTIONS(struct profiler_descr_v7);
};

/* Converts a descriptor to an event. */
static inline void profiler_read_v7(struct profiler_event *e, const struct profiler_descr_v7 *d) {
  e->type = d->type;
  e->parentObj = d->parentObj;
  e->rank = d->rank;
  switch (d->type) {
  case PROFILER_GROUP_API:
    e->groupApi.graphCaptured = d->groupApi.graphCaptured;
    e->groupApi.groupDepth = d->groupApi.groupDepth;
    break;
  case PROFILER_COLL_API:
    e->collApi.func = d->collApi.func;
    e->collApi.count = d->collApi.count;
    e->collApi.datatype = d->collApi.datatype;
    e->collApi.root = d->collApi.root;
    e->collApi.stream = d->collApi.stream;
    e->collApi.graphCaptured = d->collApi.graphCaptured;
    e->collApi.userTag = d->collApi.userTag;
    break;
  case PROFILER_P2P_API:
    e->p2pApi.func = d->p2pApi.func;
    e->p2pApi.count = d->p2pApi.count;
    e->p2pApi.datatype = d->p2pApi.datatype;
    e->p2pApi.stream = d->p2pApi.stream;
    e->p2pApi.graphCaptured = d->p2pApi.graphCaptured;
    e->p2pApi.userTag = d->p2pApi.userTag;
    break;
  case PROFILER_KERNEL_LAUNCH:
    e->kernelLaunch.stream = d->kernelLaunch.stream;
    break;
  case PROFILER_COLL:
    e->coll.seqNumber = d->coll.seqNumber;
    e->coll.func = d->coll.func;
    e->coll.sendBuff = d->coll.sendBuff;
    e->coll.recvBuff = d->coll.recvBuff;
    e->coll.count = d->coll.count;
    e->coll.root = d->coll.root;
    e->coll.datatype = d->coll.datatype;
    e->coll.nChannels = d->coll.nChannels;
    e->coll.nWarps = d->coll.nWarps;
    e->coll.algo = d->coll.algo;
    e->coll.proto = d->coll.proto;
    e->coll.parentGroup = d->coll.parentGroup;
    e->coll.kernelVariant = d->coll.kernelVariant;
    e->coll.isSymColl = d->coll.isSymColl;
    e->coll.userTag = d->coll.userTag;
    e->coll.name = 0;
    e->coll.commHash = 0;
    e->coll.trafficBytes = 0;
    e->coll.op = 0;
    e->coll.isCollnet = 0;
    e->coll.isNvls = 0;
    break;
  case PROFILER_P2P:
    e->p2p.func = d->p2p.func;
    e->p2p.buff = d->p2p.buff;
    e->p2p.datatype = d->p2p.datatype;
    e->p2p.count = d->p2p.count;
    e->p2p.peer = d->p2p.peer;
    e->p2p.nChannels = d->p2p.nChannels;
    e->p2p.parentGroup = d->p2p.parentGroup;
    e->p2p.userTag = d->p2p.userTag;
    e->p2p.name = 0;
    e->p2p.commHash = 0;
    break;
  case PROFILER_PROXY_OP:
    e->proxyOp.pid = d->proxyOp.pid;
    e->proxyOp.channelId = d->proxyOp.channelId;
    e->proxyOp.peer = d->proxyOp.peer;
    e->proxyOp.nSteps = d->proxyOp.nSteps;
    e->proxyOp.chunkSize = d->proxyOp.chunkSize;
    e->proxyOp.isSend = d->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    e->proxyStep.step = d->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    e->kernelCh.channelId = d->kernelCh.channelId;
    e->kernelCh.pTimer = d->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    e->netPlugin.id = d->netPlugin.id;
    e->netPlugin.data = d->netPlugin.data;
    break;
  case PROFILER_CE_COLL:
    e->ceColl.seqNumber = d->ceColl.seqNumber;
    e->ceColl.func = d->ceColl.func;
    e->ceColl.sendBuff = d->ceColl.sendBuff;
    e->ceColl.recvBuff = d->ceColl.recvBuff;
    e->ceColl.count = d->ceColl.count;
    e->ceColl.root = d->ceColl.root;
    e->ceColl.datatype = d->ceColl.datatype;
    e->ceColl.syncStrategy = d->ceColl.syncStrategy;
    e->ceColl.intraBatchSync = d->ceColl.intraBatchSync;
    e->ceColl.batchSize = d->ceColl.batchSize;
    e->ceColl.numBatches = d->ceColl.numBatches;
    e->ceColl.ceSeqNum = d->ceColl.ceSeqNum;
    e->ceColl.stream = d->ceColl.stream;
    e->ceColl.userTag = d->ceColl.userTag;
    break;
  case PROFILER_CE_SYNC:
    e->ceCollSync.isComplete = d->ceCollSync.isComplete;
    e->ceCollSync.nRanks = d->ceCollSync.nRanks;
    break;
  case PROFILER_CE_BATCH:
    e->ceCollBatch.numOps = d->ceCollBatch.numOps;
    e->ceCollBatch.totalBytes = d->ceCollBatch.totalBytes;
    e->ceCollBatch.useIntraSync = d->ceCollBatch.useIntraSync;
    break;
  case PROFILER_KERNEL_PHASE:
    e->kernelPhase.channelId = d->kernelPhase.channelId;
    e->kernelPhase.phaseId = d->kernelPhase.phaseId;
    e->kernelPhase.phaseName = d->kernelPhase.phaseName;
    e->kernelPhase.pTimer = d->kernelPhase.pTimer;
    break;
  default:
    break;
  }
}

/* Converts an event to a descriptor. Fields that the version doesn't have are left out. */
static inline void profiler_write_v7(struct profiler_descr_v7 *d, const struct profiler_event *e) {
  memset(d, 0, sizeof *d);
  d->type = (__typeof__(d->type))e->type;
  d->parentObj = e->parentObj;
  d->rank = e->rank;
  switch (e->type) {
  case PROFILER_GROUP_API:
    d->groupApi.graphCaptured = e->groupApi.graphCaptured;
    d->groupApi.groupDepth = e->groupApi.groupDepth;
    break;
  case PROFILER_COLL_API:
    d->collApi.func = e->collApi.func;
    d->collApi.count = e->collApi.count;
    d->collApi.datatype = e->collApi.datatype;
    d->collApi.root = e->collApi.root;
    d->collApi.stream = e->collApi.stream;
    d->collApi.graphCaptured = e->collApi.graphCaptured;
    d->collApi.userTag = e->collApi.userTag;
    break;
  case PROFILER_P2P_API:
    d->p2pApi.func = e->p2pApi.func;
    d->p2pApi.count = e->p2pApi.count;
    d->p2pApi.datatype = e->p2pApi.datatype;
    d->p2pApi.stream = e->p2pApi.stream;
    d->p2pApi.graphCaptured = e->p2pApi.graphCaptured;
    d->p2pApi.userTag = e->p2pApi.userTag;
    break;
  case PROFILER_KERNEL_LAUNCH:
    d->kernelLaunch.stream = e->kernelLaunch.stream;
    break;
  case PROFILER_COLL:
    d->coll.seqNumber = e->coll.seqNumber;
    d->coll.func = e->coll.func;
    d->coll.sendBuff = e->coll.sendBuff;
    d->coll.recvBuff = e->coll.recvBuff;
    d->coll.count = e->coll.count;
    d->coll.root = e->coll.root;
    d->coll.datatype = e->coll.datatype;
    d->coll.nChannels = e->coll.nChannels;
    d->coll.nWarps = e->coll.nWarps;
    d->coll.algo = e->coll.algo;
    d->coll.proto = e->coll.proto;
    d->coll.parentGroup = e->coll.parentGroup;
    d->coll.kernelVariant = e->coll.kernelVariant;
    d->coll.isSymColl = e->coll.isSymColl;
    d->coll.userTag = e->coll.userTag;
    break;
  case PROFILER_P2P:
    d->p2p.func = e->p2p.func;
    d->p2p.buff = e->p2p.buff;
    d->p2p.datatype = e->p2p.datatype;
    d->p2p.count = e->p2p.count;
    d->p2p.peer = e->p2p.peer;
    d->p2p.nChannels = e->p2p.nChannels;
    d->p2p.parentGroup = e->p2p.parentGroup;
    d->p2p.userTag = e->p2p.userTag;
    break;
  case PROFILER_PROXY_OP:
    d->proxyOp.pid = e->proxyOp.pid;
    d->proxyOp.channelId = e->proxyOp.channelId;
    d->proxyOp.peer = e->proxyOp.peer;
    d->proxyOp.nSteps = e->proxyOp.nSteps;
    d->proxyOp.chunkSize = e->proxyOp.chunkSize;
    d->proxyOp.isSend = e->proxyOp.isSend;
    break;
  case PROFILER_PROXY_STEP:
    d->proxyStep.step = e->proxyStep.step;
    break;
  case PROFILER_KERNEL_CH:
    d->kernelCh.channelId = e->kernelCh.channelId;
    d->kernelCh.pTimer = e->kernelCh.pTimer;
    break;
  case PROFILER_NET_PLUGIN:
    d->netPlugin.id = e->netPlugin.id;
    d->netPlugin.data = e->netPlugin.data;
    break;
  case PROFILER_CE_COLL:
    d->ceColl.seqNumber = e->ceColl.seqNumber;
    d->ceColl.func = e->ceColl.func;
    d->ceColl.sendBuff = e->ceColl.sendBuff;
    d->ceColl.recvBuff = e->ceColl.recvBuff;
    d->ceColl.count = e->ceColl.count;
    d->ceColl.root = e->ceColl.root;
    d->ceColl.datatype = e->ceColl.datatype;
    d->ceColl.syncStrategy = e->ceColl.syncStrategy;
    d->ceColl.intraBatchSync = e->ceColl.intraBatchSync;
    d->ceColl.batchSize = e->ceColl.batchSize;
    d->ceColl.numBatches = e->ceColl.numBatches;
    d->ceColl.ceSeqNum = e->ceColl.ceSeqNum;
    d->ceColl.stream = e->ceColl.stream;
    d->ceColl.userTag = e->ceColl.userTag;
    break;
  case PROFILER_CE_SYNC:
    d->ceCollSync.isComplete = e->ceCollSync.isComplete;
    d->ceCollSync.nRanks = e->ceCollSync.nRanks;
    break;
  case PROFILER_CE_BATCH:
    d->ceCollBatch.numOps = e->ceCollBatch.numOps;
    d->ceCollBatch.totalBytes = e->ceCollBatch.totalBytes;
    d->ceCollBatch.useIntraSync = e->ceCollBatch.useIntraSync;
    break;
  case PROFILER_KERNEL_PHASE:
    d->kernelPhase.channelId = e->kernelPhase.channelId;
    d->kernelPhase.phaseId = e->kernelPhase.phaseId;
    d->kernelPhase.phaseName = e->kernelPhase.phaseName;
    d->kernelPhase.pTimer = e->kernelPhase.pTimer;
    break;
  default:
    break;
  }
}

#endif
