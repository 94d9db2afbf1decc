// Shared by the parts of the fake libnccl.so.2.
//
//   transfer.c    memory that the ranks of a communicator share: seats, mailboxes, and moving bytes through them
//   comm.c        communicators: made, split, shrunk, grown, revoked, ended
//   group.c       groups, and what a non-blocking communicator does in the background
//   collective.c  the operations; reduce.c: their arithmetic
//   profiler.c    profiler plug-ins
//   misbehave.c   what was wrong in which version
//   ras.c         NCCL's RAS port
//   stream.c      libcudart.so.12: the streams on which operations run
#ifndef FAKE_H
#define FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime.h"
#pragma GCC visibility push(default)
#include "nccl.h"
#pragma GCC visibility pop

struct ncclWaitSignalDesc {
  int opCnt, peer, sigIdx, ctx;
};

struct ncclSimInfo {
  size_t size;
  unsigned int magic, version;
  float estimatedTime;
};

struct ncclCollConfig { // as far as this library uses it
  size_t size;
  unsigned int magic, version;
  uint64_t userTag;
};

struct ncclWindow_vidmem {
  char *memory;
  size_t bytes;
  int number;
};

extern const int version; // the NCCL version that this library imitates, such as 22809

// The first five have NCCL's numbers.
enum func { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, GATHER, SCATTER, SEND, RECV,
            PUT, WAIT, FUNCS };

// transfer.c

enum { HOST_BYTES = 64, CHUNK = 32 << 10, LETTER = 512, REQUESTS = 32, CHILDREN = 64 };
enum { WINDOWS = 64, SIGNALS = 256, SCALARS = 64 };
enum { EMPTY, TAKEN, FULL }; // states of mailboxes and requests
enum plane { DATA, CONTROL }; // two sets of mailboxes, so that hanging data doesn't keep ranks from splitting

// What a rank shows to the other ranks.
struct seat {
  _Atomic uint32_t bell; // counts the changes of this rank's mailboxes
  _Atomic int32_t pid;   // 0: the rank hasn't joined yet
  char host[HOST_BYTES];
  int device;
  _Atomic int async;
  _Atomic bool ready, finalized, destroyed, aborted;
  _Atomic uint64_t launched[5]; // by func, for RAS
  _Atomic uint32_t requested;   // counts additions to requests
  struct request {              // PXN: a send that this rank's proxy does for another rank of its node
    _Atomic uint32_t state;
    int pid, rank, peer, bytes;
    void *context, *parent; // pointers of that rank's process
  } requests[REQUESTS];
};

// The memory that the ranks of a communicator share, in front of their mailboxes.
struct segment {
  uint64_t hash;
  _Atomic int nranks;
  _Atomic int seated;
  _Atomic bool leased; // a process keeps it open for ranks that join later
  _Atomic int nchildren;
  struct child { // where the latest communicators that were split from it are
    _Atomic uint64_t hash;
    int pid, fd;
  } children[CHILDREN];
  struct seat seats[];
};

struct ncclComm {
  uint64_t start_magic;
  int rank, nranks; // -1 once it is destroyed
  uint64_t hash;
  int device, nodes;
  bool blocking;
  bool connected; // its ranks are connected, for collectives
  char name[64];
  struct ncclComm *group_next; // the next one in a thread's group; or NOT_IN_GROUP
  struct group_job *job;       // of a non-blocking communicator, until its result is collected
  _Atomic bool *abort;
  _Atomic bool aborted, revoked, finalized;
  _Atomic int async; // an ncclResult_t
  _Atomic int running;
  uint64_t sequence, control;      // operations and exchanges so far
  uint64_t counts[FUNCS];          // operations so far
  uint64_t *sent, *received;       // by peer
  struct segment *segment;
  size_t segment_bytes;
  int lease; // the file descriptor of the segment, in the process that made it; else -1
  struct profiler *profiler;
  bool counted; // counted among the users of the plug-in
  uint64_t scalars[SCALARS]; // from ncclRedOpCreatePreMulSum, as bits of their type
  int nscalars;
  struct ncclWindow_vidmem *windows[WINDOWS];
  int nwindows;
  struct signal { // signals that have arrived, and were not waited for yet
    int peer, index, context, count;
  } signals[SIGNALS];
  uint64_t *puts, *carried, *gets; // by peer
  uint64_t end_magic;
};

struct transfer {
  int peer;
  bool send;
  uint64_t tag;
  char *data;
  size_t bytes, done;
};

ncclResult_t id_make(ncclUniqueId *id);
ncclResult_t segment_join(struct ncclComm *c, const ncclUniqueId *id);
void segment_leave(struct ncclComm *c);
void segment_register(struct ncclComm *parent, const ncclUniqueId *child);
struct segment *segment_open(const struct child *child, size_t *bytes); // for reading; NULL if it is gone
void segment_close(struct segment *s, size_t bytes);
char process_state(int pid); // as in /proc/PID/stat; 0: the process is gone
struct seat *seat(const struct ncclComm *c, int rank);
ncclResult_t transfer(struct ncclComm *c, enum plane plane, struct transfer *t, int n);
ncclResult_t exchange(struct ncclComm *c, uint64_t tag, const int *members, int n, void *all, size_t bytes);
void ring_all(struct ncclComm *c);
void futex_wait(_Atomic uint32_t *word, uint32_t value); // for a tenth of a second at most
void futex_wake(_Atomic uint32_t *word);
uint64_t mix(uint64_t a, uint64_t b);

// group.c

#define NOT_IN_GROUP ((struct ncclComm *)0x1)

struct job { // a call that waits for other ranks, run at the end of a group
  struct job *next;
  ncclResult_t (*run)(struct job *);
  struct ncclComm *comm;
  bool must_block; // it destroys a communicator
  ncclResult_t result;
  pthread_t thread;
};

struct task { // an operation
  struct task *next;
  struct ncclComm *comm;
  enum func func;
  const void *send;
  void *recv;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root; // or peer
  cudaStream_t stream;
  uint64_t tag, sequence, user_tag;
  uint64_t scalar;
  int window, signal, context; // of PUT
  size_t offset;
  int mask; // the profiler's mask at the time of the group
  void *group_api, *api, *event;
  struct proxy_op *proxy_ops;
};

ncclResult_t group_begin(void);
ncclResult_t group_end(void);
ncclResult_t group_fail(ncclResult_t error); // the group does nothing, and returns this error at its end
ncclResult_t group_add_job(struct job *job);
ncclResult_t group_add_task(const struct task *task);
ncclResult_t comm_check(struct ncclComm *c, const char *what);
ncclResult_t comm_ensure_ready(struct ncclComm *c);
void group_collect(struct ncclComm *c);
void group_await(struct ncclComm *c);
void group_leave_depth_raised(void);
int group_depth(void);

// collective.c, reduce.c

ncclResult_t task_launch(const struct task *tasks, int n); // all tasks are of one communicator and stream
void task_drain(struct ncclComm *c);
size_t type_size(ncclDataType_t type);
bool reduce(void *into, const void *from, size_t count, ncclDataType_t type, ncclRedOp_t op);
bool scale(void *data, size_t count, ncclDataType_t type, uint64_t scalar);
bool divide(void *data, size_t count, ncclDataType_t type, int by);

// profiler.c

void profiler_open(struct ncclComm *c);
void profiler_close(struct ncclComm *c);
void profiler_api(struct task *t); // when the operation is called
void profiler_api_end(void);
void profiler_launch(struct task *tasks, int n);
void profiler_group_end(void);
void profiler_begin(struct task *t); // when its stream reaches the operation
void profiler_end(struct task *t);
const char *func_name(enum func f);

// misbehave.c

bool is_before(int v);
void dirty(void *memory, size_t bytes);
bool breaks(const struct ncclComm *c, size_t bytes); // whether an operation of this rank, with so many bytes, fails
bool is_cut(const struct ncclComm *c);               // whether the network keeps what this rank sends
void poison_group(struct ncclComm *c);

// ras.c

void ras_init_begins(void);
void ras_init_ends(void);
void ras_add(struct ncclComm *c);
void ras_remove(struct ncclComm *c);

// comm.c

void comm_set_async(struct ncclComm *c, ncclResult_t result);
ncclResult_t fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
