// libcuda.so.1: the driver functions that the attached library calls, beside libcudart.so.12. With FAKECUDA_DISK,
// mapping memory fails, as if it were a file on a disk.
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_runtime.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
  return !memory || !bytes || flags > 15 || getenv("FAKECUDA_DISK") ? cudaErrorInvalidValue : cudaSuccess;
}

EXPORT int cuMemHostGetDevicePointer_v2(unsigned long long *device, void *memory, unsigned flags) {
  *device = (uintptr_t)memory;
  return flags ? cudaErrorInvalidValue : cudaSuccess;
}

struct value {
  uint32_t *to, value;
};

static void write_value(void *data) {
  struct value *v = data;
  __atomic_store_n(v->to, v->value, __ATOMIC_RELEASE);
  free(v);
}

EXPORT int cuStreamWriteValue32_v2(cudaStream_t stream, unsigned long long to, uint32_t value, unsigned flags) {
  if (flags > 1) return cudaErrorInvalidValue;
  struct value *v = malloc(sizeof *v);
  if (!v) return cudaErrorMemoryAllocation;
  *v = (struct value){(uint32_t *)(uintptr_t)to, value};
  return cudaLaunchHostFunc(stream, write_value, v);
}

EXPORT int cuStreamIsCapturing(cudaStream_t stream, int *capturing) {
  return cudaStreamIsCapturing(stream, capturing);
}

// An event records when its stream reached it, in ns.
static void stamp(void *data) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  __atomic_store_n((int64_t *)data, now.tv_sec * 1000000000ll + now.tv_nsec, __ATOMIC_RELEASE);
}

EXPORT int cuEventCreate(void **event, unsigned flags) {
  if (flags > 7) return cudaErrorInvalidValue;
  return (*event = calloc(1, sizeof(int64_t))) ? cudaSuccess : cudaErrorMemoryAllocation;
}

EXPORT int cuEventRecord(void *event, cudaStream_t stream) { return cudaLaunchHostFunc(stream, stamp, event); }

EXPORT int cuEventElapsedTime(float *ms, void *from, void *to) {
  int64_t began = __atomic_load_n((int64_t *)from, __ATOMIC_ACQUIRE);
  int64_t ended = __atomic_load_n((int64_t *)to, __ATOMIC_ACQUIRE);
  if (!began || !ended) return cudaErrorNotReady;
  *ms = (float)(ended - began) / 1e6f;
  return cudaSuccess;
}

EXPORT int cuEventDestroy_v2(void *event) {
  (void)event; // its stream may still reach it
  return cudaSuccess;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  static _Thread_local int is;
  int was = is;
  is = *mode;
  *mode = was;
  return cudaSuccess;
}
