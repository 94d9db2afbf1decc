/*
 * A profiler plug-in that records each call on a line of the file RECORD_<NAME>. Its contexts and handles are pointers,
 * and it follows those that it gets, so another plug-in's crashes it. Compiled with VERSION, MASK and NAME. If
 * REFUSE_<NAME> is set, its init fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../profiler/native/profiler_abi.h"

#define TEXT2(X) #X
#define TEXT(X) TEXT2(X)
#define JOIN2(A, B) A##B
#define JOIN(A, B) JOIN2(A, B)
#define DESCR struct JOIN(profiler_descr_v, VERSION)

struct object {
  char mine[16]; /* NAME */
  uint64_t type;
  int number;
};

static FILE *out;
static int objects;

static struct object *make(uint64_t type) {
  struct object *o = calloc(1, sizeof *o); /* never freed: a child may come after its stop */
  snprintf(o->mine, sizeof o->mine, "%s", TEXT(NAME));
  o->type = type;
  o->number = ++objects;
  return o;
}

static int number(const void *p) {
  const struct object *o = p;
  if (o != NULL && strcmp(o->mine, TEXT(NAME)) != 0) {
    fprintf(stderr, "recorder " TEXT(NAME) ": got an object of %.16s\n", o->mine);
    abort();
  }
  return o == NULL ? 0 : o->number;
}

static int begin(void **context, int *mask) {
  if (getenv("REFUSE_" TEXT(NAME)) != NULL) {
    return 3;
  }
  if (out == NULL) {
    out = fopen(getenv("RECORD_" TEXT(NAME)), "w");
  }
  *mask = MASK;
  struct object *o = make(0);
  *context = o;
  return 0;
}

#if VERSION <= 3
static int init(void **context, int *mask) {
  const int answer = begin(context, mask);
  if (answer == 0) {
    fprintf(out, "init %d\n", number(*context));
  }
  return answer;
}
#else
#if VERSION == 4
static int init(void **context, int *mask, const char *name, uint64_t hash, int nodes, int size, int rank,
                profiler_log log) {
#else
static int init(void **context, uint64_t hash, int *mask, const char *name, int nodes, int size, int rank,
                profiler_log log) {
#endif
  (void)log;
  const int answer = begin(context, mask);
  if (answer == 0) {
    fprintf(out, "init %d %llx %s %d %d %d\n", number(*context), (unsigned long long)hash, name == NULL ? "-" : name,
            nodes, size, rank);
  }
  return answer;
}
#endif

static int start(void *context, void **handle, const DESCR *d) {
  struct profiler_event e = {0};
  JOIN(profiler_read_v, VERSION)(&e, d);
  struct object *o = make(e.type);
  fprintf(out, "start %d %d type=%llu parent=%d", number(context), o->number, (unsigned long long)e.type,
          number(e.parentObj));
  if (e.type == PROFILER_COLL) {
    fprintf(out, " group=%d %s %llu %s", number(e.coll.parentGroup), e.coll.func, (unsigned long long)e.coll.count,
            e.coll.datatype);
  }
  fprintf(out, "\n");
  *handle = o;
  return 0;
}

static int stop(void *handle) {
  fprintf(out, "stop %d\n", number(handle));
  return 0;
}

static int state(void *handle, int state, const void *args) {
  (void)args;
  fprintf(out, "state %d %d\n", number(handle), state);
  return 0;
}

static int finalize(void *context) {
  fprintf(out, "finalize %d\n", number(context));
  fflush(out);
  return 0;
}

extern const struct JOIN(profiler_v, VERSION) JOIN(ncclProfiler_v, VERSION);
const struct JOIN(profiler_v, VERSION) JOIN(ncclProfiler_v, VERSION) = {"recorder", init, start, stop, state, finalize};
