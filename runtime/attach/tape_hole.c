// Compiled by cc; the go command passes over it.
//go:build ignore

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "tape_writer.h"

/** The handler that was installed before. */
static struct sigaction before;

/** default_action restores the default action, which ends the process. */
static void default_action(int signal) {
  struct sigaction act = {.sa_handler = SIG_DFL};
  sigaction(signal, &act, NULL);
}

/** pass_on does what would have happened without this handler. */
static void pass_on(int signal, siginfo_t *info, void *context) {
  const bool sent = info->si_code <= 0; // by a process, not by a fault
  const bool simple = (before.sa_flags & SA_SIGINFO) == 0;
  if (simple && before.sa_handler == SIG_IGN && sent) {
    return;
  }
  if (simple && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
    default_action(signal); // a fault occurs again when this returns
    if (sent) {
      raise(signal);
    }
    return;
  }
  if ((before.sa_flags & (int)SA_RESETHAND) != 0) {
    default_action(signal);
  }
  if (simple) {
    before.sa_handler(signal);
  } else {
    before.sa_sigaction(signal, info, context);
  }
}

static void on_fault(int signal, siginfo_t *info, void *context) {
  const size_t size = tape_offsets(&tape.file.geometry).end;
  const int error = errno;
  if (info->si_code > 0 && (uintptr_t)info->si_addr - (uintptr_t)tape.file.memory < size &&
      mmap(tape.file.memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
          MAP_FAILED) {
    __atomic_store_n(&tape.off, true, __ATOMIC_RELAXED);
    errno = error;
    return;
  }
  errno = error;
  pass_on(signal, info, context);
}

bool tape_protect(void) {
  struct sigaction act = {.sa_sigaction = on_fault};
  if (sigaction(SIGBUS, NULL, &before) != 0) {
    return false;
  }
  // Keeps the flags and the mask of the previous handler: what it may interrupt, and what may interrupt it.
  act.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
  act.sa_mask = before.sa_mask;
  return sigaction(SIGBUS, &act, NULL) == 0;
}
