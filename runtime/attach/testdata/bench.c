/**
 * Measures what TIMES starts and ends of an operation cost the calling thread: bench TIMES prints ns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../../lifecycle/carillon_lifecycle.h"
#include "../tape.h"

static int64_t spent(void) {
  struct timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int main(int argc, char **argv) {
  struct tape_info info = {.id = {1}, .name = "world", .size = 4, .engine = "nccl 2.28.9"};
  struct tape_signature sig = {.call = CARILLON_CALL_ALL_REDUCE, .data_type = 7, .peer = -1, .bytes = 8};
  if (argc != 2 || !tape_open()) {
    return 1;
  }
  struct tape_comm *comm = tape_comm_new(&info, NULL);
  const long times = atol(argv[1]);
  int64_t before = spent();
  for (long i = 0; i < times; i++) {
    tape_op_end(comm, tape_op_start(comm, 0, &sig, 1), CARILLON_CODE_OK);
  }
  printf("%lld\n", (long long)(spent() - before));
  return 0;
}
