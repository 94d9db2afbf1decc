// NCCL's RAS port, from 2.24.3 on: NCCL_RAS_ADDR, or localhost:28028. In each process, a thread listens there
// (SO_REUSEPORT), and answers for all communicators that can be reached from those of the process.
//
// Before 2.27.3, a status during an init kills the process (nccl#1669). Before 2.29.2, the JSON lacks a comma where a
// rank doesn't answer, and the text never comes.
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

enum { COMMS = 256, PROCESSES = 256, LINE = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct ncclComm *own[COMMS];
static int nown;
static _Atomic int initialising;

struct view { // a view of the job at one moment
  struct segment *comms[COMMS];
  size_t bytes[COMMS]; // size of those that are mapped for the view
  int n;
};

static void add(struct view *v, struct segment *s, size_t bytes) {
  bool known = v->n == COMMS;
  for (int i = 0; i < v->n; i++) known |= v->comms[i]->hash == s->hash;
  if (known && bytes) segment_close(s, bytes);
  if (known) return;
  v->comms[v->n] = s;
  v->bytes[v->n++] = bytes;
  for (int i = 0; i < CHILDREN; i++) {
    struct segment *child = segment_open(&s->children[i], &bytes);
    if (child) add(v, child, bytes);
  }
}

// Holds the lock until view_close, so that communicators don't end meanwhile.
static void view_open(struct view *v) {
  pthread_mutex_lock(&lock);
  v->n = 0;
  for (int i = 0; i < nown; i++) add(v, own[i]->segment, 0);
}

static void view_close(struct view *v) {
  for (int i = 0; i < v->n; i++)
    if (v->bytes[i]) segment_close(v->comms[i], v->bytes[i]);
  pthread_mutex_unlock(&lock);
}

void ras_add(struct ncclComm *c) {
  pthread_mutex_lock(&lock);
  if (nown < COMMS) own[nown++] = c;
  pthread_mutex_unlock(&lock);
}

void ras_remove(struct ncclComm *c) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < nown; i++)
    if (own[i] == c) own[i] = own[--nown];
  pthread_mutex_unlock(&lock);
}

static const char *stamp(char *out, size_t bytes) {
  time_t now = time(NULL);
  struct tm t;
  strftime(out, bytes, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &t));
  return out;
}

static bool answers(const struct seat *s) {
  char state = process_state(s->pid);
  return state && !strchr("TtZX", state);
}

static int unanswered(const struct segment *s) {
  int n = 0;
  for (int r = 0; r < s->nranks; r++) n += !answers(&s->seats[r]);
  return n;
}

static const char *const true_or_false[] = {"false", "true"};

static void json_rank(FILE *f, const struct segment *s, int r, bool missing, bool last) {
  const struct seat *seat = &s->seats[r];
  fprintf(f, "        {\n          \"rank\": %d,\n          \"host\": \"127.0.0.1\",\n", r);
  fprintf(f, "          \"pid\": %d,\n", seat->pid);
  fprintf(f, "          \"cuda_dev\": %d,\n          \"nvml_dev\": %d%s\n          \"status\": {\n", seat->device,
          seat->device, missing && is_before(22902) ? "" : ",");
  if (missing) {
    fprintf(f, "            \"unresponsive\": true,\n            \"considered_dead\": %s\n          }\n",
            true_or_false[!process_state(seat->pid)]);
  } else {
    fprintf(f, "            \"init_state\": %d,\n            \"async_error\": %d,\n", seat->ready ? 0 : 7, seat->async);
    fprintf(f, "            \"finalize_called\": %s,\n            \"destroy_flag\": %s,\n",
            true_or_false[seat->finalized], true_or_false[seat->destroyed]);
    fprintf(f, "            \"abort_flag\": %s\n", true_or_false[seat->aborted]);
    fprintf(f, "          },\n          \"collective_counts\": {\n");
    for (int i = BROADCAST; i <= ALL_REDUCE; i++)
      fprintf(f, "            \"%s\": %lu%s\n", func_name(i), seat->launched[i], i < ALL_REDUCE ? "," : "");
    fprintf(f, "          }\n");
  }
  fprintf(f, "        }%s\n", last ? "" : ",");
}

static void json_ranks(FILE *f, const struct segment *s, const bool *here, bool missing, int n) {
  for (int r = 0, done = 0; r < s->nranks; r++)
    if (here[r] != missing) json_rank(f, s, r, missing, ++done == n);
  if (!n) fputc('\n', f);
}

static void json_status(FILE *f, const struct view *v) {
  char now[32];
  fprintf(f, "{\n  \"nccl_version\": \"%d.%d.%d\",\n  \"cuda_runtime_version\": 13000,\n", version / 10000,
          version / 100 % 100, version % 100);
  fprintf(f, "  \"cuda_driver_version\": 13000,\n  \"timestamp\": \"%s\",\n  \"communicators_count\": %d,\n",
          stamp(now, sizeof now), v->n);
  fprintf(f, "  \"communicators\": [\n");
  for (int i = 0; i < v->n; i++) {
    const struct segment *s = v->comms[i];
    bool here[s->nranks]; // asked only once: a moment later a rank may be stopped
    int nhere = 0;
    for (int r = 0; r < s->nranks; r++) nhere += here[r] = answers(&s->seats[r]);
    int missing = s->nranks - nhere;
    fprintf(f, "    {\n      \"hash\": \"0x%lx\",\n      \"secondary_hash\": \"0x%lx:0x%lx\",\n", s->hash,
            mix(s->hash, 1), mix(s->hash, 2));
    fprintf(f, "      \"size\": %d,\n      \"ranks_count\": %d,\n      \"missing_ranks_count\": %d,\n",
            s->nranks, nhere, missing);
    fprintf(f, "      \"ranks\": [\n");
    json_ranks(f, s, here, false, nhere);
    fprintf(f, "      ],\n      \"missing_ranks\": [\n");
    json_ranks(f, s, here, true, missing);
    fprintf(f, "      ]\n    }%s\n", i < v->n - 1 ? "," : "");
  }
  if (!v->n) fputc('\n', f);
  fprintf(f, "  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.000,\n    \"timeouts_count\": 0\n  }\n}\n");
}

struct process {
  int pid, device;
};

static int processes(const struct view *v, struct process *all) {
  int n = 0;
  for (int i = 0; i < v->n; i++)
    for (int r = 0; r < v->comms[i]->nranks; r++) {
      const struct seat *s = &v->comms[i]->seats[r];
      int p = 0;
      while (p < n && all[p].pid != s->pid) p++;
      if (p == n && n < PROCESSES) all[n++] = (struct process){s->pid, s->device};
    }
  return n;
}

static bool mismatch(const struct segment *s, int func, uint64_t *most, int *at_most) {
  bool differs = false;
  *most = *at_most = 0;
  for (int r = 0; r < s->nranks; r++) {
    differs |= s->seats[r].launched[func] != s->seats[0].launched[func];
    if (s->seats[r].launched[func] > *most) *most = s->seats[r].launched[func];
  }
  for (int r = 0; r < s->nranks; r++) *at_most += s->seats[r].launched[func] == *most;
  return differs;
}

static bool any_mismatch(const struct segment *s) {
  uint64_t most;
  int at_most;
  for (int i = BROADCAST; i <= ALL_REDUCE; i++)
    if (mismatch(s, i, &most, &at_most)) return true;
  return false;
}

static void text_status(FILE *f, const struct view *v) {
  struct process all[PROCESSES];
  int n = processes(v, all);
  fprintf(f, "NCCL version %d.%d.%d compiled with CUDA 13.0\nCUDA runtime version 13000, driver version 13000\n\n",
          version / 10000, version / 100 % 100, version % 100);
  fprintf(f, "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n"
             "(total)   per node  per process    (total)  (total)\n%7d  %9d  %11d  %9d  %7d\n\n",
          n > 0, n, n > 0, n, n);
  fprintf(f, "Communicators... (0.000s)\n=============\n\n");
  if (!v->n)
    fprintf(f, "No communicator data collected!\n");
  else
    fprintf(f, "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
               "    #  in group  per comm  per node  per comm  in group\n");
  for (int i = 0; i < v->n; i++) // each a group of its own
    fprintf(f, "%5d %9d %9d %9d %9d %9d %9s  %6s\n", i, 1, 1, v->comms[i]->nranks, v->comms[i]->nranks,
            v->comms[i]->nranks, "RUNNING", any_mismatch(v->comms[i]) ? "MISMATCH" : "OK");
  fprintf(f, "\nErrors\n======\n\nWarnings\n========\n\n");
  for (int i = 0; i < v->n; i++) {
    const struct segment *s = v->comms[i];
    if (!any_mismatch(s)) continue;
    fprintf(f, "#%d-0 (%lx) MISMATCH\n", i, s->hash);
    for (int func = BROADCAST; func <= ALL_REDUCE; func++) {
      uint64_t most;
      int at_most;
      if (!mismatch(s, func, &most, &at_most)) continue;
      fprintf(f, "  Communicator ranks have different %s operation counts\n", func_name(func));
      fprintf(f, "  %d rank%s launched up to operation %lu\n", at_most, at_most > 1 ? "s have" : " has", most);
      for (int r = 0; r < s->nranks; r++)
        if (s->seats[r].launched[func] != most)
          fprintf(f, "  Rank %d has launched up to operation %lu -- GPU %d managed by process %d on node 127.0.0.1\n",
                  r, s->seats[r].launched[func], s->seats[r].device, s->seats[r].pid);
    }
    fputc('\n', f);
  }
  fputc('\n', f);
}

// Named as in NCCL, so that a stack shows where nccl#1669 crashed: at a communicator that is not there yet.
__attribute__((noinline)) static void rasCollCommsSkipMissing(struct segment *volatile missing) {
  missing->nranks = 0;
}

struct client {
  int fd;
  FILE *out; // in memory: a client that has left must not raise SIGPIPE, not even in exit
  char *text;
  size_t bytes;
};

static void flush(struct client *c) {
  fflush(c->out);
  for (size_t sent = 0; sent < c->bytes;) {
    ssize_t n = send(c->fd, c->text + sent, c->bytes - sent, MSG_NOSIGNAL);
    if (n < 0) break;
    sent += n;
  }
  rewind(c->out);
}

static bool await_end(int fd, int milliseconds) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  char ignored[256];
  return poll(&p, 1, milliseconds) > 0 && read(fd, ignored, sizeof ignored) <= 0;
}

static void status(struct client *c, bool json) {
  if (atomic_load(&initialising) && is_before(22703)) rasCollCommsSkipMissing(NULL);
  struct view v;
  view_open(&v);
  int missing = 0;
  for (int i = 0; i < v.n; i++) missing += unanswered(v.comms[i]);
  bool silent = missing && !json && is_before(22902);
  if (!silent) (json ? json_status : text_status)(c->out, &v);
  view_close(&v);
  while (silent && !await_end(c->fd, -1)) continue;
}

static void event(FILE *f, bool json, const char *name, struct process p) {
  char now[32];
  stamp(now, sizeof now);
  if (json)
    fprintf(f, "{\n  \"timestamp\": \"%s\",\n  \"event\": \"%s\",\n  \"peer\": {\n    \"host\": \"127.0.0.1\",\n"
               "    \"pid\": %d,\n    \"cuda_devs\": [%d],\n    \"nvml_devs\": [%d]\n  },\n  \"details\": \"\"\n}\n",
            now, name, p.pid, p.device, p.device);
  else
    fprintf(f, "[%s] %s: Process %d on node 127.0.0.1 managing GPU %d\n", now, name, p.pid, p.device);
}

// Reports processes that join and die until the client leaves; only events of the group lifecycle.
static void monitor(struct client *c, bool json) {
  static const struct process none;
  struct process known[PROCESSES];
  int n = 0;
  fprintf(c->out, "OK\n");
  if (!json) fprintf(c->out, "RAS Monitor Mode - watching for peer changes\n");
  for (bool first = true; first || !await_end(c->fd, 50); first = false) {
    struct process all[PROCESSES];
    struct view v;
    view_open(&v);
    int m = processes(&v, all);
    view_close(&v);
    for (int i = 0; i < m; i++) {
      int k = 0;
      while (k < n && known[k].pid != all[i].pid) k++;
      if (k < n || n == PROCESSES || !process_state(all[i].pid)) continue;
      known[n++] = all[i];
      if (!first) event(c->out, json, "PEER_NEW", all[i]);
    }
    for (int k = 0; k < n; k++) {
      char state = known[k].pid ? process_state(known[k].pid) : 'S';
      if (state && state != 'Z') continue;
      event(c->out, json, "PEER_DEAD", known[k]);
      known[k] = none;
    }
    flush(c);
  }
}

static void *serve(void *data) {
  struct client c = {.fd = (int)(intptr_t)data};
  FILE *in = fdopen(c.fd, "r"), *out = c.out = open_memstream(&c.text, &c.bytes);
  char line[LINE];
  bool json = false, more = in && out;
  while (more && fgets(line, sizeof line, in)) {
    line[strcspn(line, "\r\n")] = 0;
    if (!strncasecmp(line, "CLIENT PROTOCOL ", 16))
      fprintf(out, "SERVER PROTOCOL 2\n");
    else if (!strncasecmp(line, "TIMEOUT ", 8))
      fprintf(out, "OK\n");
    else if (!strncasecmp(line, "SET FORMAT ", 11) && !is_before(22807)) {
      json = !strcasecmp(line + 11, "json");
      fprintf(out, "OK\n");
    } else if (!strcasecmp(line, "STATUS") || !strcasecmp(line, "VERBOSE STATUS")) {
      status(&c, json);
      more = false;
    } else if (!strncasecmp(line, "MONITOR", 7) && !is_before(22902)) {
      monitor(&c, json);
      more = false;
    } else
      fprintf(out, "ERROR: Unknown command\n");
    flush(&c);
  }
  if (out) fclose(out);
  free(c.text);
  if (in) fclose(in);
  return NULL;
}

static void *accept_all(void *data) {
  for (;;) {
    int fd = accept4((int)(intptr_t)data, NULL, NULL, SOCK_CLOEXEC);
    pthread_t thread;
    if (fd < 0) continue;
    if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd))
      close(fd);
    else
      pthread_detach(thread);
  }
  return NULL;
}

static void listen_once(void) {
  const char *enabled = getenv("NCCL_RAS_ENABLE"), *at = getenv("NCCL_RAS_ADDR");
  char host[256];
  if (is_before(22403) || (enabled && !atoi(enabled))) return;
  snprintf(host, sizeof host, "%s", at && *at ? at : "localhost:28028");
  char *port = strrchr(host, ':');
  if (!port) return;
  *port++ = 0;
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
  if (getaddrinfo(host, port, &hints, &found)) return;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  pthread_t thread;
  if (!bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, 16) &&
      !pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)fd))
    pthread_detach(thread);
  else
    close(fd);
  freeaddrinfo(found);
}

void ras_init_begins(void) {
  atomic_fetch_add(&initialising, 1);
  pthread_once(&once, listen_once);
}

void ras_init_ends(void) {
  atomic_fetch_sub(&initialising, 1);
}
