// Groups. Calls that a thread makes between ncclGroupStart and ncclGroupEnd are kept, and run at the end: first the
// jobs that wait for other ranks (init, split, destroy), in parallel, then the operations. If a communicator of the
// group is non-blocking, a separate thread runs the group, as a group job that the communicators refer to until
// somebody asks for the result.
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct group {
  struct job *jobs;
  struct task *tasks, **last;
  int ntasks;
  ncclResult_t error;
};

struct group_job {
  _Atomic int refs; // held by the communicators, and by the thread
  struct group group;
  struct ncclComm **comms;
  int ncomms;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;
};

static _Thread_local int depth;
static _Thread_local struct group group;
static _Thread_local struct ncclComm *group_head; // the communicators of the thread's group

static _Atomic(struct ncclComm *) stale; // misbehaviour: a list still refers to this communicator, which has left it

void poison_group(struct ncclComm *c) {
  atomic_store(&stale, c);
}

void group_leave_depth_raised(void) {
  depth++;
}

int group_depth(void) {
  return depth;
}

ncclResult_t group_begin(void) {
  depth++;
  return ncclSuccess;
}

// Named as in NCCL, so that a stack shows where nccl#1605 crashed.
__attribute__((noinline)) static void ncclGroupCommJoin(struct ncclComm *c) {
  struct ncclComm **pp = &group_head, *old = atomic_load(&stale);
  if (old) pp = &old->group_next;
  while (*pp && (*pp)->hash != c->hash) pp = &(*pp)->group_next;
  if (c->group_next != NOT_IN_GROUP) return;
  c->group_next = *pp;
  *pp = c;
}

static void leave_all(void) {
  for (struct ncclComm *c = group_head, *next; c; c = next) {
    next = c->group_next;
    c->group_next = NOT_IN_GROUP;
  }
  group_head = NULL;
}

ncclResult_t group_fail(ncclResult_t error) {
  group.error = error;
  return error;
}

ncclResult_t group_add_job(struct job *job) {
  job->next = group.jobs;
  group.jobs = job;
  return ncclSuccess;
}

ncclResult_t group_add_task(const struct task *task) {
  struct task *copy = malloc(sizeof *copy);
  if (!copy) return ncclSystemError;
  *copy = *task;
  ncclGroupCommJoin(task->comm);
  profiler_api(copy);
  if (!group.tasks) group.last = &group.tasks;
  copy->next = NULL;
  *group.last = copy;
  group.last = &copy->next;
  group.ntasks++;
  return ncclSuccess;
}

static void *run_job(void *data) {
  struct job *job = data;
  job->result = job->run(job);
  return NULL;
}

static ncclResult_t run_jobs(struct job *jobs) {
  ncclResult_t result = ncclSuccess;
  for (struct job *j = jobs; j; j = j->next)
    if (j == jobs && !j->next)
      run_job(j);
    else if (pthread_create(&j->thread, NULL, run_job, j))
      return ncclSystemError;
  for (struct job *j = jobs, *next; j; j = next) {
    next = j->next;
    if (j != jobs || next) pthread_join(j->thread, NULL);
    if (j->result) result = j->result;
    free(j);
  }
  return result;
}

static int is_p2p(const struct task *t) {
  return t->func == SEND || t->func == RECV;
}

static int is_same_batch(const struct task *a, const struct task *b) {
  return a->comm == b->comm && a->stream == b->stream && is_p2p(a) && is_p2p(b);
}

// With NCCL_RUNTIME_CONNECT, a communicator's first collective is launched once all ranks have reached theirs.
static ncclResult_t connect(struct ncclComm *c) {
  const char *when = getenv("FAKENCCL_CONNECT");
  if (!when || strcmp(when, "lazy") || c->connected) return ncclSuccess;
  int *ranks = calloc(c->nranks, sizeof *ranks);
  char *all = calloc(c->nranks, 1);
  for (int i = 0; ranks && i < c->nranks; i++) ranks[i] = i;
  ncclResult_t result = ranks && all ? exchange(c, mix(0, c->hash), ranks, c->nranks, all, 1) : ncclSystemError;
  c->connected = !result;
  free(ranks);
  free(all);
  return result;
}

// Launches operations in order, except that all sends and receives on a stream are launched as one.
static ncclResult_t run_tasks(struct task *first, int n) {
  struct task *all = malloc((n + 1) * sizeof *all);
  bool *done = calloc(n + 1, sizeof *done);
  ncclResult_t result = all && done ? ncclSuccess : ncclSystemError;
  n = 0;
  for (struct task *t = first, *next; t; t = next) {
    next = t->next;
    if (all) all[n++] = *t;
    free(t);
  }
  for (int i = 0; i < n && !result; i++)
    if (!is_p2p(&all[i])) result = connect(all[i].comm);
  struct task *batch = malloc((n + 1) * sizeof *batch);
  for (int i = 0; i < n && !result; i++) {
    if (done[i]) continue;
    int size = 0;
    for (int j = i; j < n; j++)
      if (j == i || (!done[j] && is_same_batch(&all[i], &all[j]))) {
        batch[size++] = all[j];
        done[j] = true;
      }
    profiler_launch(batch, size);
    result = task_launch(batch, size);
  }
  free(batch);
  free(done);
  free(all);
  return result;
}

static ncclResult_t run_group(struct group *g) {
  ncclResult_t result = run_jobs(g->jobs);
  return result || !g->tasks ? result : run_tasks(g->tasks, g->ntasks);
}

static void unref(struct group_job *job) {
  if (atomic_fetch_sub(&job->refs, 1) > 1) return;
  free(job->comms);
  free(job);
}

static void *run_group_job(void *data) {
  struct group_job *job = data;
  ncclResult_t result = run_group(&job->group);
  pthread_mutex_lock(&job->lock);
  for (int i = 0; i < job->ncomms; i++) comm_set_async(job->comms[i], result);
  job->done = true;
  pthread_cond_broadcast(&job->changed);
  pthread_mutex_unlock(&job->lock);
  unref(job);
  return NULL;
}

static void job_refer(struct group_job *job, struct ncclComm *c) {
  for (int i = 0; i < job->ncomms; i++)
    if (job->comms[i] == c) return;
  group_collect(c);
  job->comms[job->ncomms++] = c;
  job->refs++;
  c->job = job;
  comm_set_async(c, ncclInProgress);
}

static ncclResult_t start_group_job(struct group *g) {
  int most = g->ntasks;
  for (struct job *j = g->jobs; j; j = j->next) most++;
  struct group_job *job = calloc(1, sizeof *job);
  if (!job || !(job->comms = calloc(most, sizeof(struct ncclComm *)))) return ncclSystemError;
  job->refs = 1;
  job->group = *g;
  pthread_mutex_init(&job->lock, NULL);
  pthread_cond_init(&job->changed, NULL);
  for (struct job *j = g->jobs; j; j = j->next) job_refer(job, j->comm);
  for (struct task *t = g->tasks; t; t = t->next) job_refer(job, t->comm);
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_group_job, job)) return ncclSystemError;
  pthread_detach(thread);
  return ncclInProgress;
}

void group_await(struct ncclComm *c) {
  if (!c->job) return;
  pthread_mutex_lock(&c->job->lock);
  while (!c->job->done) pthread_cond_wait(&c->job->changed, &c->job->lock);
  pthread_mutex_unlock(&c->job->lock);
}

void group_collect(struct ncclComm *c) {
  if (!c->job) return;
  group_await(c);
  unref(c->job);
  c->job = NULL;
}

static bool is_blocking(const struct group *g) {
  bool blocking = true;
  for (struct job *j = g->jobs; j; j = j->next) {
    if (j->must_block) return true;
    blocking &= j->comm->blocking;
  }
  for (struct task *t = g->tasks; t; t = t->next) blocking &= t->comm->blocking;
  return blocking;
}

static void discard(struct group *g) {
  for (struct job *j = g->jobs, *next; j; j = next) {
    next = j->next;
    free(j);
  }
  for (struct task *t = g->tasks, *next; t; t = next) {
    next = t->next;
    free(t);
  }
}

ncclResult_t group_end(void) {
  if (depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  if (--depth > 0) return ncclSuccess;
  struct group g = group;
  memset(&group, 0, sizeof group);
  leave_all();
  profiler_api_end();
  ncclResult_t result = g.error;
  if (result)
    discard(&g);
  else if (g.jobs || g.tasks)
    result = is_blocking(&g) ? run_group(&g) : start_group_job(&g);
  profiler_group_end();
  return result;
}

ncclResult_t ncclGroupStart(void) {
  return group_begin();
}

ncclResult_t ncclGroupEnd(void) {
  return group_end();
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  if (info) info->estimatedTime = 1;
  return group_end();
}
