/*
 * NCCL's own functions, behind those of the same names in this library: REAL(ncclSend)(…). Each is looked up on its
 * first call, and nothing is done before that. If there is no such function, a stand-in returns an error, and one line
 * on stderr says why. A program that asks the loader whether a function exists finds this library's; only a call shows
 * that NCCL has none.
 */
#ifndef CARILLON_RESOLVE_H
#define CARILLON_RESOLVE_H

#include <stdatomic.h>
#include <stddef.h>

#include "nccl.h"

enum real_function {
#define X(name, since) REAL_##name,
  NCCL_FUNCTIONS(X)
#undef X
  REAL_COUNT
};

typedef void real_function_t(void);

/* The functions that were found; NULL: not looked for yet. */
extern _Atomic(real_function_t *) real_functions[REAL_COUNT];

/* Looks a function of NCCL up, or uses the stand-in. Takes no lock but the loader's. */
real_function_t *real_find(enum real_function);

static inline real_function_t *real(enum real_function which) {
  real_function_t *found = atomic_load_explicit(&real_functions[which], memory_order_acquire);
  return __builtin_expect(found != NULL, 1) ? found : real_find(which);
}

#define REAL(name) ((__typeof__(&name))real(REAL_##name))

/* The version from ncclGetVersion, such as 22809; 0 if there is no NCCL. */
int real_version(void);

/* A version with dots, for printf. */
#define VERSION "%d.%d.%d"
#define DOTTED(version) (version) / 10000, (version) / 100 % 100, (version) % 100

#endif
