/*
 * Measures an in-place ncclAllReduce through Carillon, which is preloaded, and NCCL's own function in the same process:
 * bursts of calls of the two alternate, on all GPUs, with a thread for each GPU. Prints a line for each size: the
 * bytes, then for each pair of bursts the microseconds per call of NCCL's own function, and of the one through
 * Carillon.
 *
 *   paired PAIRS BYTES…
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { GPUS = 16, CALLS = 1000, WARM = 4 }; /* calls per burst; pairs before those that count */

#define MUST(call) \
  do { \
    int result_ = (int)(call); \
    if (result_) { \
      fprintf(stderr, "%s: %d\n", #call, result_); \
      exit(1); \
    } \
  } while (0)

typedef ncclResult_t all_reduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);

static all_reduce *ways[2];
static pthread_barrier_t barrier;
static ncclComm_t comms[GPUS];
static double took[GPUS];
static int gpus, pairs, sizes;
static char **size_of;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* burst returns the time per call on the slowest GPU. */
static double burst(int gpu, all_reduce *call, float *data, size_t count, cudaStream_t stream) {
  pthread_barrier_wait(&barrier);
  const double began = now();
  for (int i = 0; i < CALLS; i++) MUST(call(data, data, count, ncclFloat32, ncclSum, comms[gpu], stream));
  MUST(cudaStreamSynchronize(stream));
  took[gpu] = (now() - began) / CALLS;
  pthread_barrier_wait(&barrier);
  double most = 0;
  for (int g = 0; g < gpus; g++)
    if (took[g] > most) most = took[g];
  return most;
}

static void *run(void *arg) {
  const int gpu = (int)(size_t)arg;
  MUST(cudaSetDevice(gpu));
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  for (int s = 0; s < sizes; s++) {
    const size_t bytes = strtoul(size_of[s], NULL, 10);
    float *data;
    MUST(cudaMalloc((void **)&data, bytes));
    if (gpu == 0) printf("%zu", bytes);
    for (int p = -WARM; p < pairs; p++) {
      double us[2];
      for (int i = 0; i < 2; i++) {
        const int way = (i + p) & 1; /* the two functions begin pairs in turn */
        us[way] = burst(gpu, ways[way], data, bytes / 4, stream);
      }
      if (gpu == 0 && p >= 0) printf(" %.4f %.4f", us[0], us[1]);
    }
    if (gpu == 0) puts("");
    MUST(cudaFree(data));
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: paired PAIRS BYTES…\n");
    return 2;
  }
  pairs = atoi(argv[1]), sizes = argc - 2, size_of = argv + 2;
  void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  ways[0] = nccl ? (all_reduce *)dlsym(nccl, "ncclAllReduce") : NULL;
  ways[1] = (all_reduce *)dlsym(RTLD_DEFAULT, "ncclAllReduce");
  if (!ways[0] || ways[0] == ways[1]) {
    fprintf(stderr, "Carillon is not between this program and NCCL\n");
    return 1;
  }
  MUST(cudaGetDeviceCount(&gpus));
  if (gpus > GPUS) gpus = GPUS;
  MUST(ncclCommInitAll(comms, gpus, NULL));
  pthread_barrier_init(&barrier, NULL, (unsigned)gpus);
  pthread_t threads[GPUS];
  for (int g = 0; g < gpus; g++) MUST(pthread_create(&threads[g], NULL, run, (void *)(size_t)g));
  for (int g = 0; g < gpus; g++) MUST(pthread_join(threads[g], NULL));
  for (int g = 0; g < gpus; g++) MUST(ncclCommDestroy(comms[g]));
  return 0;
}
