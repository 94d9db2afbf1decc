/**
 * Truncates its tape, goes on, and then has a SIGBUS that has nothing to do with the tape. Arguments: the action for
 * SIGBUS that was set before there was a tape (default, ignore, plain, info), and whether the signal is a fault or is
 * sent.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../lifecycle/carillon_lifecycle.h"
#include "../tape.h"

enum { PAGE = 4096, PLAIN = 41, INFO = 42 };

static uint8_t *other; /* memory of another file */

static void plain(int signal) { _exit(signal == SIGBUS ? PLAIN : 1); }

static void info(int signal, siginfo_t *info, void *context) {
  const bool right = info->si_code <= 0 || info->si_addr == other;
  _exit(signal == SIGBUS && right && context != NULL ? INFO : 1);
}

int main(int argc, char **argv) {
  if (argc != 3) {
    return 1;
  }
  struct sigaction act = {.sa_handler = SIG_DFL};
  if (strcmp(argv[1], "ignore") == 0) {
    act.sa_handler = SIG_IGN;
  } else if (strcmp(argv[1], "plain") == 0) {
    act.sa_handler = plain;
  } else if (strcmp(argv[1], "info") == 0) {
    act.sa_flags = SA_SIGINFO;
    act.sa_sigaction = info;
  }
  FILE *file = tmpfile();
  if (sigaction(SIGBUS, &act, NULL) != 0 || file == NULL ||
      (other = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0)) == MAP_FAILED || !tape_open()) {
    return 1;
  }
  const struct tape_info world = {.name = "world", .size = 1, .engine = "nccl"};
  const struct tape_signature signature = {.call = CARILLON_CALL_ALL_REDUCE, .data_type = 7, .peer = -1, .bytes = 8};
  struct tape_comm *comm = tape_comm_new(&world, NULL);
  char path[FILENAME_MAX];
  snprintf(path, sizeof path, "%s", tape_path());
  for (int i = 0; i < 1000; i++) {
    if (i == 500 && truncate(path, 0) != 0) {
      return 1;
    }
    tape_op_end(comm, tape_op_start(comm, 0, &signature, 1), CARILLON_CODE_OK);
  }
  tape_comm_free(comm);
  if (tape_comm_new(&world, NULL) != NULL || tape_path()[0] != 0) {
    return 1; /* the process goes on after its tape is gone */
  }
  if (strcmp(argv[2], "sent") == 0) {
    raise(SIGBUS);
  } else {
    *(volatile uint8_t *)other = 1;
  }
  return 0;
}
