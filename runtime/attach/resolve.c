//go:build ignore

#include "resolve.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

_Atomic(real_function_t *) real_functions[REAL_COUNT];

static const struct {
  const char *twin; /* with the p in front */
  int since;
} functions[REAL_COUNT] = {
#define X(name, since) {"p" #name, since},
    NCCL_FUNCTIONS(X)
#undef X
};

static const char *name_of(enum real_function which) { return functions[which].twin + 1; }

static ncclResult_t no_library(void) { return ncclSystemError; }
static ncclResult_t no_function(void) { return ncclInvalidUsage; }

/* A function that is not in this library; NULL: there is none. */
static real_function_t *foreign(void *scope, const char *name) {
  Dl_info found, own;
  void *symbol = dlsym(scope, name);
  if (symbol == NULL || dladdr(symbol, &found) == 0 || dladdr((void *)real_functions, &own) == 0 ||
      found.dli_fbase == own.dli_fbase) {
    return NULL;
  }
  return (real_function_t *)symbol;
}

/* The function or its pnccl twin. */
static real_function_t *either(void *scope, enum real_function which) {
  real_function_t *found = foreign(scope, name_of(which));
  return found != NULL ? found : foreign(scope, functions[which].twin);
}

/* A handle of NCCL's library, which is kept open. */
static void *library(int how) {
  static _Atomic(void *) kept;
  void *handle = atomic_load_explicit(&kept, memory_order_acquire);
  if (handle == NULL && (handle = dlopen("libnccl.so.2", RTLD_LAZY | how)) != NULL) {
    atomic_store_explicit(&kept, handle, memory_order_release);
  }
  return handle;
}

/*
 * The loaded libnccl.so.2 comes first: if it is in a scope of its own, as that of a wheel is, only its handle finds it.
 * Then come libraries that the program was linked with under another name, and last the one that the loader would find.
 */
static real_function_t *look(enum real_function which) {
  real_function_t *found = NULL;
  void *handle = library(RTLD_NOLOAD);
  if (handle != NULL) {
    found = either(handle, which);
  }
  if (found == NULL) {
    found = either(RTLD_NEXT, which);
  }
  if (found == NULL && handle == NULL && (handle = library(0)) != NULL) {
    found = either(handle, which);
  }
  dlerror(); /* dlerror must report only the program's own errors */
  return found;
}

real_function_t *real_find(enum real_function which) {
  real_function_t *found = look(which);
  if (found == NULL) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const bool version = which == REAL_ncclGetVersion || real_version() == 0;
    found = (real_function_t *)(version ? no_library : no_function);
    if (version && !atomic_flag_test_and_set(&said)) {
      fprintf(stderr,
              "carillon: %s was called, and there is no NCCL behind it: no libnccl.so.2 is loaded or found "
              "(LD_LIBRARY_PATH); its calls answer ncclSystemError\n",
              name_of(which));
    } else if (!version) {
      fprintf(stderr,
              "carillon: %s was called, which NCCL " VERSION " does not have; it came with " VERSION
              ", and answers ncclInvalidUsage\n",
              name_of(which), DOTTED(real_version()), DOTTED(functions[which].since));
    }
  }
  atomic_store_explicit(&real_functions[which], found, memory_order_release);
  return found;
}

int real_version(void) {
  static atomic_int known;
  int version = atomic_load_explicit(&known, memory_order_relaxed);
  if (version == 0 && REAL(ncclGetVersion)(&version) == ncclSuccess) {
    atomic_store_explicit(&known, version, memory_order_relaxed);
  }
  return version;
}
