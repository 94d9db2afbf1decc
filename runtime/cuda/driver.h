// The CUDA driver API, as far as the package uses it, and one function shim_… for each of the package's calls. The
// declarations are our own, according to NVIDIA's reference of the driver API; every function has the name of its
// symbol, whose suffix is its version.
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef int CUresult, CUdevice;
typedef uint64_t CUdeviceptr, CUmem;

// A handle is a pointer to a type in which cgo sees no pointers: it searches other types for Go pointers, for 15 ns
// each.
struct handle {
  char unseen;
};
typedef struct handle *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUgraph, *CUgraphExec;
typedef struct handle driver;

typedef struct {
  char bytes[64];
} CUipcMemHandle;

typedef struct {
  int type, id; // type 1: a device
} CUmemLocation;

typedef struct {
  int type, handle_types; // 1: pinned; 1: a POSIX file descriptor
  CUmemLocation location;
  void *win32;
  unsigned char flags[8];
} CUmemAllocationProp;

typedef struct {
  CUmemLocation location;
  int flags; // 3: read and write
} CUmemAccessDesc;

typedef struct {
  int id, unused; // id 6: programmatic stream serialization
  union {
    int allowed;
    char bytes[64];
  };
} CUlaunchAttribute;

typedef struct {
  unsigned gx, gy, gz, bx, by, bz, shared;
  CUstream stream;
  CUlaunchAttribute *attributes;
  unsigned count;
} CUlaunchConfig;

enum { CUDA_ERROR_CONTEXT_IS_DESTROYED = 709, CUDA_ERROR_NOT_SUPPORTED = 801 };

#define DRIVER_FUNCTIONS(F)                                                                                            \
  F(cuInit, (unsigned flags))                                                                                          \
  F(cuDriverGetVersion, (int *version))                                                                                \
  F(cuGetErrorName, (CUresult code, const char **text))                                                                \
  F(cuGetErrorString, (CUresult code, const char **text))                                                              \
  F(cuDeviceGetCount, (int *count))                                                                                    \
  F(cuDeviceGet, (CUdevice * device, int ordinal))                                                                     \
  F(cuDeviceGetUuid, (void *uuid, CUdevice device))                                                                    \
  F(cuDeviceGetUuid_v2, (void *uuid, CUdevice device))                                                                 \
  F(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                                \
  F(cuDeviceGetP2PAttribute, (int *value, int attribute, CUdevice device, CUdevice peer))                              \
  F(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                  \
  F(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                   \
  F(cuCtxGetCurrent, (CUcontext * context))                                                                            \
  F(cuCtxSetCurrent, (CUcontext context))                                                                              \
  F(cuCtxSynchronize, (void))                                                                                          \
  F(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                                                           \
  F(cuMemAlloc_v2, (CUdeviceptr * memory, size_t bytes))                                                               \
  F(cuMemFree_v2, (CUdeviceptr memory))                                                                                \
  F(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                                        \
  F(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                                  \
  F(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                             \
  F(cuPointerGetAttributes, (unsigned count, int *attributes, void **values, CUdeviceptr pointer))                     \
  F(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags))                                                \
  F(cuMemHostUnregister, (void *memory))                                                                               \
  F(cuMemHostGetDevicePointer_v2, (CUdeviceptr * device, void *memory, unsigned flags))                                \
  F(cuMemGetAllocationGranularity, (size_t * bytes, const CUmemAllocationProp *prop, int option))                      \
  F(cuMemCreate, (CUmem * memory, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags))            \
  F(cuMemRelease, (CUmem memory))                                                                                      \
  F(cuMemAddressReserve, (CUdeviceptr * base, size_t bytes, size_t alignment, CUdeviceptr want,                        \
                          unsigned long long flags))                                                                   \
  F(cuMemAddressFree, (CUdeviceptr base, size_t bytes))                                                                \
  F(cuMemMap, (CUdeviceptr base, size_t bytes, size_t offset, CUmem memory, unsigned long long flags))                 \
  F(cuMemUnmap, (CUdeviceptr base, size_t bytes))                                                                      \
  F(cuMemSetAccess, (CUdeviceptr base, size_t bytes, const CUmemAccessDesc *access, size_t count))                     \
  F(cuMemExportToShareableHandle, (void *handle, CUmem memory, int type, unsigned long long flags))                    \
  F(cuMemImportFromShareableHandle, (CUmem * memory, void *handle, int type))                                          \
  F(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr memory))                                                  \
  F(cuIpcOpenMemHandle_v2, (CUdeviceptr * memory, CUipcMemHandle handle, unsigned flags))                              \
  F(cuIpcCloseMemHandle, (CUdeviceptr memory))                                                                         \
  F(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))                                     \
  F(cuStreamDestroy_v2, (CUstream stream))                                                                             \
  F(cuStreamGetCtx, (CUstream stream, CUcontext *context))                                                             \
  F(cuStreamQuery, (CUstream stream))                                                                                  \
  F(cuStreamSynchronize, (CUstream stream))                                                                            \
  F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                               \
  F(cuStreamWriteValue32_v2, (CUstream stream, CUdeviceptr to, uint32_t value, unsigned flags))                        \
  F(cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                         \
  F(cuEventCreate, (CUevent * event, unsigned flags))                                                                  \
  F(cuEventDestroy_v2, (CUevent event))                                                                                \
  F(cuEventRecord, (CUevent event, CUstream stream))                                                                   \
  F(cuEventQuery, (CUevent event))                                                                                     \
  F(cuEventSynchronize, (CUevent event))                                                                               \
  F(cuEventElapsedTime, (float *milliseconds, CUevent from, CUevent to))                                               \
  F(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned count, int *options, void **values))           \
  F(cuModuleUnload, (CUmodule module))                                                                                 \
  F(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                                   \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction function, int threads, size_t shared))       \
  F(cuLaunchKernel, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
                     unsigned bz, unsigned shared, CUstream stream, void **params, void **extra))                      \
  F(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))                \
  F(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                              \
  F(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                            \
  F(cuThreadExchangeStreamCaptureMode, (int *mode))                                                                    \
  F(cuStreamIsCapturing, (CUstream stream, int *status))                                                               \
  F(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                        \
  F(cuGraphDestroy, (CUgraph graph))                                                                                   \
  F(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                                \
  F(cuGraphExecDestroy, (CUgraphExec exec))

// functions is a driver: a loaded library. Functions that an older library lacks are NULL.
typedef struct {
  void *library;
  int version; // CUDA version: 12090 is 12.9
#define F(name, args) CUresult(*name) args;
  DRIVER_FUNCTIONS(F)
#undef F
} functions;

static inline const functions *of(const driver *d) { return (const functions *)d; }

// in makes a context current on the calling thread. out restores another context that was current before. If there was
// none, ours stays current, so that the next call needs no change.
static inline CUresult in(const driver *d, CUcontext context, CUcontext *was) {
  *was = NULL;
  CUresult r = of(d)->cuCtxGetCurrent(was);
  if (r == CUDA_ERROR_CONTEXT_IS_DESTROYED) *was = NULL;
  else if (r) return r;
  return *was == context ? 0 : of(d)->cuCtxSetCurrent(context);
}

static inline CUresult out(const driver *d, CUcontext context, CUcontext was, CUresult r) {
  if (!was || was == context) return r;
  CUresult back = of(d)->cuCtxSetCurrent(was);
  return r ? r : back;
}

#define CALL(name, ...) (of(d)->name ? of(d)->name(__VA_ARGS__) : CUDA_ERROR_NOT_SUPPORTED)

// PLAIN is a function that needs no context, WITHIN one that needs a context.
#define PLAIN(shim, name, params, ...)                                                                                 \
  static inline CUresult shim params { return CALL(name, ##__VA_ARGS__); }
#define WITHIN(shim, name, params, ...)                                                                                \
  static inline CUresult shim params {                                                                                 \
    CUcontext was;                                                                                                     \
    CUresult r = in(d, c, &was);                                                                                       \
    return r ? r : out(d, c, was, CALL(name, ##__VA_ARGS__));                                                          \
  }
#define D const driver *d
#define DC const driver *d, CUcontext c

PLAIN(shim_init, cuInit, (D), 0)
PLAIN(shim_count, cuDeviceGetCount, (D, int *count), count)
PLAIN(shim_device, cuDeviceGet, (D, CUdevice *device, int ordinal), device, ordinal)
PLAIN(shim_device_uuid, cuDeviceGetUuid, (D, void *uuid, CUdevice device), uuid, device)
PLAIN(shim_device_uuid_v2, cuDeviceGetUuid_v2, (D, void *uuid, CUdevice device), uuid, device)
PLAIN(shim_attribute, cuDeviceGetAttribute, (D, int *value, int attribute, CUdevice device), value, attribute, device)
PLAIN(shim_p2p, cuDeviceGetP2PAttribute, (D, int *value, int attribute, CUdevice device, CUdevice peer), value,
      attribute, device, peer)
PLAIN(shim_retain, cuDevicePrimaryCtxRetain, (D, CUcontext *context, CUdevice device), context, device)
PLAIN(shim_release, cuDevicePrimaryCtxRelease_v2, (D, CUdevice device), device)
WITHIN(shim_synchronize, cuCtxSynchronize, (DC))
WITHIN(shim_enable_peer, cuCtxEnablePeerAccess, (DC, CUcontext peer), peer, 0)

WITHIN(shim_alloc, cuMemAlloc_v2, (DC, CUdeviceptr *memory, size_t bytes), memory, bytes)
WITHIN(shim_free, cuMemFree_v2, (DC, CUdeviceptr memory), memory)
// A copy from unregistered memory may continue after cuMemcpy has returned, on the default stream, for which
// non-blocking streams don't wait.
static inline CUresult shim_copy_to_device(DC, CUdeviceptr to, const void *from, size_t bytes) {
  CUcontext was;
  CUresult r = in(d, c, &was);
  if (r) return r;
  r = CALL(cuMemcpy, to, (uintptr_t)from, bytes);
  if (!r) r = CALL(cuStreamSynchronize, NULL);
  return out(d, c, was, r);
}
WITHIN(shim_copy_to_host, cuMemcpy, (DC, void *to, CUdeviceptr from, size_t bytes), (uintptr_t)to, from, bytes)
WITHIN(shim_copy_async, cuMemcpyAsync, (DC, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from,
       bytes, stream)
WITHIN(shim_set, cuMemsetD8Async, (DC, CUdeviceptr to, unsigned char value, size_t count, CUstream stream), to, value,
       count, stream)

WITHIN(shim_stream, cuStreamCreateWithPriority, (DC, CUstream *stream, int priority), stream, 1, priority)
WITHIN(shim_stream_destroy, cuStreamDestroy_v2, (DC, CUstream stream), stream)
WITHIN(shim_stream_context, cuStreamGetCtx, (DC, CUstream stream, CUcontext *context), stream, context)
WITHIN(shim_stream_synchronize, cuStreamSynchronize, (DC, CUstream stream), stream)
WITHIN(shim_stream_wait, cuStreamWaitEvent, (DC, CUstream stream, CUevent event), stream, event, 0)
WITHIN(shim_write_value, cuStreamWriteValue32_v2, (DC, CUstream stream, CUdeviceptr to, uint32_t value), stream, to,
       value, 0)
WITHIN(shim_wait_value, cuStreamWaitValue32_v2, (DC, CUstream stream, CUdeviceptr at, uint32_t value), stream, at,
       value, 0)

WITHIN(shim_event, cuEventCreate, (DC, CUevent *event, unsigned flags), event, flags)
WITHIN(shim_event_destroy, cuEventDestroy_v2, (DC, CUevent event), event)
WITHIN(shim_event_record, cuEventRecord, (DC, CUevent event, CUstream stream), event, stream)
WITHIN(shim_event_synchronize, cuEventSynchronize, (DC, CUevent event), event)
WITHIN(shim_event_elapsed, cuEventElapsedTime, (DC, float *milliseconds, CUevent from, CUevent to), milliseconds, from,
       to)

// While a stream of the process is being captured, a thread may be forbidden to query anything else: relaxed mode
// allows it.
static inline void relaxed(const driver *d, int *mode) {
  if (of(d)->cuThreadExchangeStreamCaptureMode) of(d)->cuThreadExchangeStreamCaptureMode(mode);
}

#define RELAXED(shim, name, params, ...)                                                                               \
  static inline CUresult shim params {                                                                                 \
    CUcontext was;                                                                                                     \
    CUresult r = in(d, c, &was);                                                                                       \
    if (r) return r;                                                                                                   \
    int mode = 2;                                                                                                      \
    relaxed(d, &mode);                                                                                                 \
    r = CALL(name, ##__VA_ARGS__);                                                                                     \
    relaxed(d, &mode);                                                                                                 \
    return out(d, c, was, r);                                                                                          \
  }

RELAXED(shim_stream_query, cuStreamQuery, (DC, CUstream stream), stream)
RELAXED(shim_event_query, cuEventQuery, (DC, CUevent event), event)

// What the driver knows about an address.
typedef struct {
  CUdeviceptr base;
  size_t bytes;
  uint64_t id;
  int type, ordinal, ipc;
} pointer_info;

static inline CUresult shim_pointer(DC, CUdeviceptr pointer, pointer_info *p) {
  int attributes[] = {2, 7, 9, 10, 11, 12}; // memory type, buffer id, ordinal, legacy IPC, range's start, size
  void *values[] = {&p->type, &p->id, &p->ordinal, &p->ipc, &p->base, &p->bytes};
  CUcontext was;
  CUresult r = in(d, c, &was);
  return r ? r : out(d, c, was, CALL(cuPointerGetAttributes, 6, attributes, values, pointer));
}

WITHIN(shim_register, cuMemHostRegister_v2, (DC, void *memory, size_t bytes), memory, bytes, 3) // portable, mapped
WITHIN(shim_unregister, cuMemHostUnregister, (DC, void *memory), memory)
WITHIN(shim_host_pointer, cuMemHostGetDevicePointer_v2, (DC, CUdeviceptr *device, void *memory), device, memory, 0)

// shared_on describes memory of a device, or of a NUMA node of the host.
static inline CUmemAllocationProp shared_on(int on_host, int ordinal) {
  return (CUmemAllocationProp){.type = 1, .handle_types = 1, .location = {on_host ? 3 : 1, ordinal}};
}

static inline CUresult shim_granularity(DC, CUdevice device, size_t *bytes) {
  CUmemAllocationProp prop = shared_on(0, device);
  CUcontext was;
  CUresult r = in(d, c, &was);
  return r ? r : out(d, c, was, CALL(cuMemGetAllocationGranularity, bytes, &prop, 1));
}

static inline CUresult shim_create(DC, int on_host, int ordinal, CUmem *memory, size_t bytes) {
  CUmemAllocationProp prop = shared_on(on_host, ordinal);
  CUcontext was;
  CUresult r = in(d, c, &was);
  return r ? r : out(d, c, was, CALL(cuMemCreate, memory, bytes, &prop, 0));
}

static inline CUresult shim_access(DC, CUdeviceptr base, size_t bytes, CUdevice device) {
  CUmemAccessDesc access = {{1, device}, 3};
  CUcontext was;
  CUresult r = in(d, c, &was);
  return r ? r : out(d, c, was, CALL(cuMemSetAccess, base, bytes, &access, 1));
}

WITHIN(shim_mem_release, cuMemRelease, (DC, CUmem memory), memory)
WITHIN(shim_reserve, cuMemAddressReserve, (DC, CUdeviceptr *base, size_t bytes), base, bytes, 0, 0, 0)
WITHIN(shim_unreserve, cuMemAddressFree, (DC, CUdeviceptr base, size_t bytes), base, bytes)
WITHIN(shim_map, cuMemMap, (DC, CUdeviceptr base, size_t bytes, CUmem memory), base, bytes, 0, memory, 0)
WITHIN(shim_unmap, cuMemUnmap, (DC, CUdeviceptr base, size_t bytes), base, bytes)
WITHIN(shim_export, cuMemExportToShareableHandle, (DC, int *fd, CUmem memory), fd, memory, 1, 0)
WITHIN(shim_import, cuMemImportFromShareableHandle, (DC, CUmem *memory, int fd), memory, (void *)(intptr_t)fd, 1)

RELAXED(shim_ipc_get, cuIpcGetMemHandle, (DC, void *handle, CUdeviceptr memory), handle, memory)
RELAXED(shim_ipc_open, cuIpcOpenMemHandle_v2, (DC, CUdeviceptr *memory, const void *handle), memory,
        *(const CUipcMemHandle *)handle, 1) // enables peer access where it must
RELAXED(shim_ipc_close, cuIpcCloseMemHandle, (DC, CUdeviceptr memory), memory)

// shim_load loads an image, which it compiles if it is PTX; compiler errors are written to log.
static inline CUresult shim_load(DC, CUmodule *module, const void *image, char *log, size_t bytes) {
  int options[] = {5, 6}; // error log's buffer, its size
  void *values[] = {log, (void *)bytes};
  CUcontext was;
  CUresult r = in(d, c, &was);
  return r ? r : out(d, c, was, CALL(cuModuleLoadDataEx, module, image, 2, options, values));
}

WITHIN(shim_unload, cuModuleUnload, (DC, CUmodule module), module)
WITHIN(shim_function, cuModuleGetFunction, (DC, CUfunction *function, CUmodule module, const char *name), function,
       module, name)
WITHIN(shim_occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,
       (DC, int *blocks, CUfunction function, int threads, size_t shared), blocks, function, threads, shared)

// shim_launch lets a kernel start early if that is allowed and the driver can also capture such a launch: from CUDA
// 12.3 on.
static inline CUresult shim_launch(DC, CUfunction function, int early, unsigned blocks, unsigned threads,
                                   unsigned shared, CUstream stream, char *param) {
  void *params[] = {param};
  CUcontext was;
  CUresult r = in(d, c, &was);
  if (r) return r;
  if (early && of(d)->version >= 12030) {
    CUlaunchAttribute serialization = {.id = 6, .allowed = 1};
    CUlaunchConfig config = {blocks, 1, 1, threads, 1, 1, shared, stream, &serialization, 1};
    r = CALL(cuLaunchKernelEx, &config, function, params, NULL);
  } else {
    r = CALL(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, shared, stream, params, NULL);
  }
  return out(d, c, was, r);
}

WITHIN(shim_begin_capture, cuStreamBeginCapture_v2, (DC, CUstream stream, int mode), stream, mode)
WITHIN(shim_end_capture, cuStreamEndCapture, (DC, CUstream stream, CUgraph *graph), stream, graph)
WITHIN(shim_capturing, cuStreamIsCapturing, (DC, CUstream stream, int *status), stream, status)
WITHIN(shim_instantiate, cuGraphInstantiateWithFlags, (DC, CUgraphExec *exec, CUgraph graph), exec, graph, 0)
WITHIN(shim_graph_destroy, cuGraphDestroy, (DC, CUgraph graph), graph)
WITHIN(shim_graph_launch, cuGraphLaunch, (DC, CUgraphExec exec, CUstream stream), exec, stream)
WITHIN(shim_exec_destroy, cuGraphExecDestroy, (DC, CUgraphExec exec), exec)

// open_driver loads a library. It returns NULL, and text says why, if the library can't be loaded or isn't a driver.
static inline driver *open_driver(const char *path, const char **text) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *text = dlerror();
    return NULL;
  }
  functions *f = calloc(1, sizeof *f);
  if (!f) abort();
  f->library = library;
#define F(name, args) *(void **)&f->name = dlsym(library, #name);
  DRIVER_FUNCTIONS(F)
#undef F
  if (f->cuDriverGetVersion) f->cuDriverGetVersion(&f->version);
  if (f->cuInit && f->cuCtxGetCurrent && f->cuCtxSetCurrent && f->cuGetErrorName && f->cuGetErrorString)
    return (driver *)f;
  *text = "it has no cuInit, cuCtxGetCurrent, cuCtxSetCurrent, cuGetErrorName or cuGetErrorString";
  dlclose(library);
  free(f);
  return NULL;
}

static inline const char *error_name(const driver *d, CUresult code) {
  const char *text = NULL;
  return of(d)->cuGetErrorName(code, &text) || !text ? "" : text;
}

static inline const char *error_text(const driver *d, CUresult code) {
  const char *text = NULL;
  return of(d)->cuGetErrorString(code, &text) || !text ? "" : text;
}
