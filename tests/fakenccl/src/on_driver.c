// libcudart.so.12 on top of a libcuda.so.1, as far as libnccl.so.2 uses it: for programs whose streams and memory are
// the driver's, so that the fake's operations run there.
#include <stdint.h>

#include "cuda_runtime.h"

#define EXPORT __attribute__((visibility("default")))
enum { DEVICES = 16 };

int cuCtxGetDevice(int *device);
int cuCtxSetCurrent(void *context);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data);
int cuMemAlloc_v2(uint64_t *memory, size_t bytes);
int cuMemFree_v2(uint64_t memory);
int cuStreamIsCapturing(cudaStream_t stream, int *capturing);

EXPORT cudaError_t cudaGetDevice(int *device) {
  if (cuCtxGetDevice(device)) *device = 0; // no context is current yet
  return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int ordinal) {
  static _Atomic(void *) contexts[DEVICES]; // each is retained only once
  int device;
  if (ordinal < 0 || ordinal >= DEVICES || cuDeviceGet(&device, ordinal)) return cudaErrorInvalidDevice;
  void *context = contexts[ordinal];
  if (!context) {
    int r = cuDevicePrimaryCtxRetain(&context, device);
    if (r) return (cudaError_t)r;
    contexts[ordinal] = context;
  }
  return (cudaError_t)cuCtxSetCurrent(context);
}

EXPORT cudaError_t cudaMalloc(void **memory, size_t bytes) { return (cudaError_t)cuMemAlloc_v2((uint64_t *)memory, bytes); }

EXPORT cudaError_t cudaFree(void *memory) { return (cudaError_t)cuMemFree_v2((uintptr_t)memory); }

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
  return (cudaError_t)cuLaunchHostFunc(stream, fn, data);
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *capturing) {
  return (cudaError_t)cuStreamIsCapturing(stream, capturing);
}
