//go:build ignore

#include "stream.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Of the CUDA driver's interface. */
typedef unsigned long long device_pointer;
enum { PORTABLE = 1, DEVICE_MAP = 2, RELAXED = 2, NOT_CAPTURING = 0 };

static struct {
  int (*host_register)(void *, size_t, unsigned);
  int (*device_address)(device_pointer *, void *, unsigned);
  int (*write_value)(cudaStream_t, device_pointer, uint32_t, unsigned);
  int (*is_capturing)(cudaStream_t, int *);
  int (*exchange_capture_mode)(int *);
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool off;
static uint8_t *memory;              /* that devices write */
static _Atomic device_pointer found; /* where it is for a device; 0: nowhere yet */

/* Looks for the driver that the process has loaded; it is not loaded here. */
static bool look(void) {
  void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == NULL) {
    return false;
  }
  *(void **)&driver.host_register = dlsym(handle, "cuMemHostRegister_v2");
  *(void **)&driver.device_address = dlsym(handle, "cuMemHostGetDevicePointer_v2");
  *(void **)&driver.write_value = dlsym(handle, "cuStreamWriteValue32_v2");
  *(void **)&driver.is_capturing = dlsym(handle, "cuStreamIsCapturing");
  *(void **)&driver.exchange_capture_mode = dlsym(handle, "cuThreadExchangeStreamCaptureMode");
  dlerror(); /* what the program asks for is its own errors */
  off = driver.host_register == NULL || driver.device_address == NULL || driver.write_value == NULL ||
        driver.is_capturing == NULL || driver.exchange_capture_mode == NULL;
  return !off;
}

/* Gives devices access to the tape, if there is a driver, and a context that is the thread's. */
static void open_memory(void) {
  pthread_mutex_lock(&lock);
  const char *set = getenv("CARILLON_STREAM_MARKS");
  off = off || (set != NULL && strcmp(set, "off") == 0);
  size_t size = 0;
  device_pointer at = 0;
  if (!off && atomic_load(&found) == 0 && (memory = tape_reached(&size)) != NULL && look()) {
    int mode = RELAXED; /* else it would end a capture that another thread may be in */
    const bool exchanged = driver.exchange_capture_mode(&mode) == 0;
    if (driver.host_register(memory, size, PORTABLE | DEVICE_MAP) == 0 &&
        driver.device_address(&at, memory, 0) == 0) {
      atomic_store_explicit(&found, at, memory_order_release);
    }
    if (exchanged) {
      driver.exchange_capture_mode(&mode);
    }
  }
  pthread_mutex_unlock(&lock);
}

void stream_launches(struct comm *comm, cudaStream_t stream) {
  if (!comm->streamed) {
    comm->streamed = true;
    if (atomic_load_explicit(&found, memory_order_relaxed) == 0) {
      open_memory();
    }
  }
  if (atomic_load_explicit(&found, memory_order_relaxed) != 0 && tape_mark_due(comm->tape)) {
    comm->stream = stream;
    comm->launches = true;
  }
}

void stream_launched(struct comm *comm) {
  if (!comm->launches) {
    return;
  }
  comm->launches = false;
  const device_pointer base = atomic_load_explicit(&found, memory_order_acquire);
  uint32_t *const word = tape_mark_word(comm->tape);
  int capturing = NOT_CAPTURING;
  if (word == NULL || driver.is_capturing(comm->stream, &capturing) != 0) {
    return;
  }
  if (capturing != NOT_CAPTURING) {
    tape_captured(comm->tape);
    return;
  }
  const size_t offset = (size_t)((uint8_t *)word - memory);
  if (driver.write_value(comm->stream, base + offset, tape_mark_number(comm->tape), 0) == 0) {
    tape_mark(comm->tape);
  }
  tape_mark_check(comm->tape, false);
}

void stream_check(struct comm *comm) { tape_mark_check(comm->tape, false); }
