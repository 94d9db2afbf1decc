//go:build ignore

#include "thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct thread *thread_known __attribute__((tls_model("initial-exec")));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static atomic_bool aside;

static void forget(void *thread) {
  thread_known = NULL;
  free(thread);
}

void thread_step_aside(void) {
  atomic_store_explicit(&aside, true, memory_order_relaxed);
  thread_known = NULL;
}

static void prepare(void) {
  if (pthread_key_create(&key, forget) != 0 || pthread_atfork(NULL, NULL, thread_step_aside) != 0) {
    atomic_store_explicit(&aside, true, memory_order_relaxed);
  }
}

struct thread *thread_make(void) {
  if (atomic_load_explicit(&aside, memory_order_relaxed)) {
    return NULL;
  }
  pthread_once(&once, prepare);
  struct thread *thread = NULL;
  if (!atomic_load_explicit(&aside, memory_order_relaxed) && (thread = calloc(1, sizeof *thread)) != NULL) {
    thread->id = (uint32_t)syscall(SYS_gettid);
    if (pthread_setspecific(key, thread) != 0) {
      free(thread);
      return NULL;
    }
    thread_known = thread;
  }
  return thread;
}
