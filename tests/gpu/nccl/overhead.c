/*
 * What a call of ncclAllReduce costs the program that makes it: 4 bytes, on a communicator of one rank, on one stream.
 * In place there is nothing for the GPU to do, else a copy. Prints the least and the median of the batches of a tenth
 * of a second, in nanoseconds a call: two numbers in place, and two with a copy.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 1000, CALLS = 200 }; /* a batch has fewer than a stream takes without waiting */

#define MUST(call) \
  do { \
    int result_ = (int)(call); \
    if (result_) { \
      fprintf(stderr, "%s: %d\n", #call, result_); \
      exit(1); \
    } \
  } while (0)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(ncclComm_t comm, cudaStream_t stream, float *from, float *to) {
  static double ns[BATCHES];
  int batches = 0, warm = -10; /* batches before those that count */
  for (const double end = now() + 1e8; batches == 0 || (batches < BATCHES && now() < end);) {
    const double began = now();
    for (int i = 0; i < CALLS; i++) MUST(ncclAllReduce(from, to, 1, ncclFloat32, ncclSum, comm, stream));
    ns[batches] = (now() - began) / CALLS;
    if (warm++ >= 0) batches++;
    MUST(cudaStreamSynchronize(stream));
  }
  qsort(ns, (size_t)batches, sizeof *ns, compare);
  printf("%.1f %.1f ", ns[0], ns[batches / 2]);
}

int main(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  float *data;
  MUST(cudaSetDevice(0));
  MUST(cudaMalloc((void **)&data, 2 * sizeof *data));
  MUST(ncclGetUniqueId(&id));
  MUST(ncclCommInitRank(&comm, 1, id, 0));
  MUST(cudaStreamCreate(&stream));
  measure(comm, stream, data, data);
  measure(comm, stream, data, data + 1);
  printf("\n");
  MUST(ncclCommDestroy(comm));
  return 0;
}
