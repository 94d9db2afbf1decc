/**
 * Plays a script of telemetry/tape/tapetest onto a tape in $TAPETEST_DIR, with the writer in C. It has some steps more:
 *
 *   path         prints the tape's path
 *   fork N       a child does on communicator N what a child can do, and exits; then the script goes on
 *   mark N M S L a mark follows the operation launched last, on stream S; the M-th operation of communicator N is the
 *                first of those that are launched with it; with an L, they are launched only now
 *   reach N M    the stream of communicator N writes M
 *   abort N      communicator N is about to be aborted
 *   captured N M the operations from the M-th on are captured in a graph
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../lifecycle/carillon_lifecycle.h"
#include "../tape.h"

enum { COMMS = 64, TEXT = 8192 };

static struct tape_comm *comms[COMMS];
static struct tape_info infos[COMMS];

static void fail(const char *line) {
  fprintf(stderr, "no such step: %s\n", line);
  exit(1);
}

static void parse_id(const char *text, uint8_t id[16]) {
  for (int i = 0; i < 16; i++) {
    sscanf(text + 2 * i, "%2" SCNx8, &id[i]);
  }
}

/** cut puts a text into a field as a user of the tape has to: in whole characters, followed by a NUL. */
static void cut(char *field, size_t size, const char *text) {
  size_t n = strlen(text);
  if (n >= size) {
    for (n = size - 1; n > 0 && ((uint8_t)text[n] & 0xC0) == 0x80; n--) {
    }
  }
  memcpy(field, text, n);
  memset(field + n, 0, size - n);
}

struct load {
  struct tape_comm *comm;
  uint64_t times, done;
};

static void *operations(void *arg) {
  struct load *load = arg;
  struct tape_signature sig = {.call = CARILLON_CALL_ALL_REDUCE, .data_type = 7, .peer = -1, .bytes = 8};
  for (uint64_t i = 0; i < load->times; i++) {
    tape_op_end(load->comm, tape_op_start(load->comm, 0, &sig, 1), CARILLON_CODE_OK);
    __atomic_add_fetch(&load->done, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

static void threads(struct tape_comm *one, struct tape_comm *other, uint64_t times, bool killed) {
  struct load loads[2] = {{.comm = one, .times = times}, {.comm = other, .times = times}};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    loads[i].times = killed ? UINT64_MAX : times;
    pthread_create(&threads[i], NULL, operations, &loads[i]);
  }
  while (killed && __atomic_load_n(&loads[0].done, __ATOMIC_RELAXED) < times) {
    usleep(1);
  }
  if (killed) {
    kill(getpid(), SIGKILL);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
  }
}

/** child does all that a forked child can do to its parent's tape. */
static void child(struct tape_comm *comm) {
  struct tape_info info = {.name = "child", .size = 1, .engine = "host"};
  struct load load = {.comm = comm, .times = 100};
  struct tape_life life = {.act = TAPE_ACT_DESTROY, .stage = TAPE_STAGE_END, .peer = -1, .text = "by a child"};
  if (tape_open() || tape_comm_new(&info, comm) != NULL || tape_path()[0] != 0) {
    _exit(1);
  }
  operations(&load);
  tape_op_phase(comm, 1);
  tape_op_wait(comm, 1);
  tape_comm_state(comm, 9);
  tape_comm_describe(comm, &info);
  tape_life(comm, &life);
  tape_comm_free(comm);
  exit(0); // with all destructors
}

static void parse_site(const char *rest, struct tape_site *site, char *function, char *file) {
  if (sscanf(rest, "%8191s %8191s %" SCNd32 " %" SCNu64 " %" SCNd64, function, file, &site->line, &site->thread,
             &site->time) != 5) {
    fail(rest);
  }
  site->function = strcmp(function, "-") != 0 ? function : NULL;
  site->file = strcmp(file, "-") != 0 ? file : NULL;
}

int main(void) {
  static char line[4 * TEXT], function[TEXT], file[TEXT], first_function[TEXT], first_file[TEXT];
  struct tape_config config = {
      .dir = getenv("TAPETEST_DIR"), .slots = 4, .life_records = 256, .op_records = 256,
      .slow = getenv("CARILLON_SLOW_THRESHOLD") == NULL ? 3600000000000 : 0,
      .mark_every = 1,
  };
  tape_open_with(&config); // without a tape, all steps do nothing
  struct tape_site site = {0}, first = {0};
  while (fgets(line, sizeof line, stdin) != NULL) {
    char word[16], id[33], parent[33], name[TEXT], engine[TEXT];
    int n = 0, at = 0, other = 0, late = 0, shared = 0, text = 0;
    uint64_t number = 0;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%15s %n", word, &at) < 1) {
      fail(line);
    }
    const char *rest = line + at;
    if (strcmp(word, "crash") == 0) {
      _exit(0);
    } else if (strcmp(word, "path") == 0) {
      puts(tape_path());
      fflush(stdout);
      continue;
    } else if (strcmp(word, "site") == 0) {
      parse_site(rest, &site, function, file);
      continue;
    } else if (strcmp(word, "first") == 0) {
      parse_site(rest, &first, first_function, first_file);
      continue;
    }
    if (sscanf(rest, "%d %n", &n, &at) < 1 || n <= 0 || n >= COMMS) {
      fail(line);
    }
    rest += at;
    struct tape_info *info = &infos[n];
    struct tape_comm *comm = comms[n];
    struct tape_life life = {.site = site, .first = first};
    struct tape_signature sig;
    uint8_t state, algorithm;
    uint16_t code;
    int32_t rank;
    if (strcmp(word, "comm") == 0 &&
        sscanf(rest, "%32s %32s %8191s %" SCNd32 " %" SCNd32 " %" SCNd32 " %8191s %d", id, parent, name, &info->rank,
               &info->size, &info->nodes, engine, &other) == 8) {
      parse_id(id, info->id);
      parse_id(parent, info->parent);
      cut(info->name, sizeof info->name, name);
      cut(info->engine, sizeof info->engine, engine);
      comms[n] = tape_comm_new(info, comms[other]);
    } else if (strcmp(word, "describe") == 0 &&
               sscanf(rest, "%8191s %" SCNd32 " %8191s", name, &info->nodes, engine) == 3) {
      struct tape_info described = *info;
      cut(described.name, sizeof described.name, name);
      cut(described.engine, sizeof described.engine, engine);
      tape_comm_describe(comm, &described);
    } else if (strcmp(word, "state") == 0 && sscanf(rest, "%" SCNu8, &state) == 1) {
      tape_comm_state(comm, state);
    } else if (strcmp(word, "life") == 0 &&
               sscanf(rest,
                      "%" SCNu8 " %" SCNu8 " %" SCNu8 " %" SCNu64 " %" SCNu8 " %" SCNu16 " %" SCNu8 " %" SCNd32
                      " %" SCNd64 " %" SCNu32 " %d %32s %n",
                      &life.act, &life.call, &life.stage, &life.seq, &life.phase, &life.code, &life.state, &life.peer,
                      &life.start, &life.ops, &shared, id, &text) == 12) {
      parse_id(id, life.child);
      life.shared = shared != 0;
      life.text = rest + text;
      tape_life(comm, &life);
      site = first = (struct tape_site){0};
    } else if (strcmp(word, "start") == 0 &&
               sscanf(rest, "%" SCNu64 " %" SCNu8 " %" SCNu8 " %" SCNu8 " %" SCNd32 " %" SCNu64 " %" SCNu8, &number,
                      &sig.call, &sig.data_type, &sig.reduction, &sig.peer, &sig.bytes, &algorithm) == 7) {
      tape_op_start(comm, number, &sig, algorithm);
    } else if (strcmp(word, "phase") == 0 && sscanf(rest, "%" SCNu8, &state) == 1) {
      tape_op_phase(comm, state);
    } else if (strcmp(word, "wait") == 0 && sscanf(rest, "%" SCNd32, &rank) == 1) {
      tape_op_wait(comm, rank);
    } else if (strcmp(word, "end") == 0 && sscanf(rest, "%" SCNu64 " %" SCNu16, &number, &code) == 2) {
      tape_op_end(comm, number, code);
    } else if (strcmp(word, "mark") == 0 && sscanf(rest, "%" SCNu64 " %d %d", &number, &other, &late) >= 2) {
      if (!tape_mark_due(comm, number)) {
        fail(line);
      }
      if (tape_observes(comm)) {
        tape_observe(comm);
      }
      if (late != 0) {
        tape_mark_launched(comm);
      }
      tape_mark(comm, tape_mark_before(comm, other != 0) != NULL, (uint32_t)other);
    } else if (strcmp(word, "measured") == 0 && sscanf(rest, "%" SCNu64, &number) == 1) {
      if (tape_observed(comm)) {
        tape_measured(comm, (int64_t)number);
      }
    } else if (strcmp(word, "begin") == 0 && sscanf(rest, "%" SCNu64, &number) == 1) {
      tape_mark_word(comm)[1] = (uint32_t)number;
    } else if (strcmp(word, "reach") == 0 && sscanf(rest, "%" SCNu64, &number) == 1) {
      *tape_mark_word(comm) = (uint32_t)number;
    } else if (strcmp(word, "captured") == 0 && sscanf(rest, "%" SCNu64, &number) == 1) {
      tape_captured(comm, number);
    } else if (strcmp(word, "abort") == 0) {
      tape_mark_check(comm, true);
    } else if (strcmp(word, "close") == 0) {
      tape_comm_close(comm);
    } else if ((strcmp(word, "both") == 0 || strcmp(word, "killed") == 0) &&
               sscanf(rest, "%d %" SCNu64, &other, &number) == 2) {
      threads(comm, comms[other], number, strcmp(word, "killed") == 0);
    } else if (strcmp(word, "fork") == 0) {
      int status = 0;
      pid_t pid = fork();
      if (pid == 0) {
        child(comm);
      }
      if (waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "the child ended with %d\n", status);
        return 1;
      }
    } else {
      fail(line);
    }
  }
  return 0;
}
