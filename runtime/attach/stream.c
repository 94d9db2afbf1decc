//go:build ignore

#include "stream.h"

#include <dlfcn.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statfs.h>

#include "profiler_depth.h"

/* From the CUDA driver's interface. */
typedef unsigned long long device_pointer;
enum { PORTABLE = 1, DEVICE_MAP = 2, RELAXED = 2, NOT_CAPTURING = 0 };

static struct {
  int (*host_register)(void *, size_t, unsigned);
  int (*device_address)(device_pointer *, void *, unsigned);
  int (*write_value)(cudaStream_t, device_pointer, uint32_t, unsigned);
  int (*is_capturing)(cudaStream_t, int *);
  int (*exchange_capture_mode)(int *);
  /* NULL: nothing is measured by events */
  int (*event_create)(void **, unsigned);
  int (*event_record)(void *, cudaStream_t);
  int (*event_elapsed)(float *, void *, void *);
  int (*event_destroy)(void *);
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool off;
static uint8_t *memory;              /* the part of the tape that devices write */
static _Atomic device_pointer found; /* its address on the devices; 0: not mapped yet */

/* Finds the driver, if the process has loaded it. Doesn't load it. */
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
  *(void **)&driver.event_record = dlsym(handle, "cuEventRecord");
  *(void **)&driver.event_elapsed = dlsym(handle, "cuEventElapsedTime");
  *(void **)&driver.event_destroy = dlsym(handle, "cuEventDestroy_v2");
  if (driver.event_record != NULL && driver.event_elapsed != NULL && driver.event_destroy != NULL) {
    *(void **)&driver.event_create = dlsym(handle, "cuEventCreate");
  }
  dlerror(); /* dlerror must report only the program's own errors */
  off = driver.host_register == NULL || driver.device_address == NULL || driver.write_value == NULL ||
        driver.is_capturing == NULL || driver.exchange_capture_mode == NULL;
  return !off;
}

/* Keeps driver calls from invalidating a capture of another thread. Returns the thread's mode, to be restored. */
static int relax(void) {
  int mode = RELAXED;
  driver.exchange_capture_mode(&mode);
  return mode;
}

/* Says, once, that streams can't write to the tape if it is on a disk. */
static void unmapped(void) {
  struct statfs fs;
  if (statfs(tape_path(), &fs) == 0 && fs.f_type != TMPFS_MAGIC) {
    off = true;
    fprintf(stderr,
            "carillon: the tape %s lies on a disk, where the GPU can't write: an operation that is launched and never "
            "done is not seen (CARILLON_TAPE_DIR chooses a directory in memory)\n",
            tape_path());
  }
}

/* Whether CARILLON_STREAM_MARKS is off, in one of the words that switches accept. */
static bool switched_off(void) {
  static const char *const words[] = {"off", "no", "false", "0"};
  const char *set = getenv("CARILLON_STREAM_MARKS");
  for (size_t i = 0; set != NULL && i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(set, words[i]) == 0) {
      return true;
    }
  }
  return false;
}

/* Maps the tape for devices, if there is a driver and the thread has a context. */
static void open_memory(void) {
  pthread_mutex_lock(&lock);
  off = off || switched_off();
  size_t size = 0;
  device_pointer at = 0;
  if (!off && atomic_load(&found) == 0 && (memory = tape_reached(&size)) != NULL && look()) {
    int mode = relax();
    if (driver.host_register(memory, size, PORTABLE | DEVICE_MAP) == 0 &&
        driver.device_address(&at, memory, 0) == 0) {
      atomic_store_explicit(&found, at, memory_order_release);
    } else {
      unmapped();
    }
    driver.exchange_capture_mode(&mode);
  }
  pthread_mutex_unlock(&lock);
}

/*
 * Makes the stream write when it gets there. This takes the GPU 3 us, for the barrier: without it
 * (CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) the stream writes while earlier work still runs.
 */
static bool write_value(const struct comm *comm, const uint32_t *word) {
  const size_t offset = (size_t)((const uint8_t *)word - memory);
  const device_pointer base = atomic_load_explicit(&found, memory_order_acquire);
  return driver.write_value(comm->stream, base + offset, tape_mark_number(comm->tape), 0) == 0;
}

/* The profiler plug-in's context of the communicator; 0: there is no plug-in. */
static uintptr_t context_of(const struct comm *comm) {
  return atomic_load_explicit(&comm->ops.context, memory_order_relaxed);
}

/* Ends an observation, or abandons it. */
static void end_observation(struct comm *comm) {
  for (int i = 0; i < 2; i++) {
    if (comm->events[i] != NULL) {
      driver.event_destroy(comm->events[i]);
      comm->events[i] = NULL;
    }
  }
  if (comm->looks) {
    comm->looks = false;
    depth_end(context_of(comm));
  }
  comm->observes = OBSERVES_NOTHING;
}

/* Records the event before (0) or behind (1) what is observed. False: the driver failed. */
static bool record(struct comm *comm, int i) {
  int mode = relax();
  if (driver.event_create(&comm->events[i], 0) != 0) {
    comm->events[i] = NULL;
  }
  const bool well = comm->events[i] != NULL && driver.event_record(comm->events[i], comm->stream) == 0;
  driver.exchange_capture_mode(&mode);
  return well;
}

/* Observes what is launched next: the device's time for it, unless it is a group, whose operations the device does
   together; and what NCCL tells about it. */
static void observe(struct comm *comm) {
  comm->observes = OBSERVES_NEXT;
  tape_observe(comm->tape);
  if (driver.event_create != NULL && !tape_mark_groups(comm->tape) && !record(comm, 0)) {
    end_observation(comm);
    return;
  }
  struct tape_look of;
  comm->looks = tape_look_at(comm->tape, &of) && depth_begin(context_of(comm), comm->tape, &of);
  comm->asks = comm->asks || comm->looks;
}

/* Ends the observation if the stream has done what is observed. */
static void observed(struct comm *comm) {
  if (comm->observes != OBSERVES_LAUNCHED || !tape_observed(comm->tape)) {
    return;
  }
  int mode = relax();
  float ms = 0;
  if (comm->events[1] != NULL && driver.event_elapsed(&ms, comm->events[0], comm->events[1]) == 0) {
    tape_measured(comm->tape, (int64_t)((double)ms * 1e6));
  }
  end_observation(comm);
  driver.exchange_capture_mode(&mode);
}

/* Makes the stream write before what is launched next, and begins to observe that, if that is due. */
static void begin(struct comm *comm, bool same_stream) {
  const uint32_t *word = tape_mark_before(comm->tape, same_stream);
  if (comm->observes == OBSERVES_NEXT) { /* it was not launched */
    end_observation(comm);
  }
  const bool observes = comm->observes == OBSERVES_NOTHING && tape_observes(comm->tape);
  if (observes) {
    observe(comm);
  }
  comm->told = word != NULL && write_value(comm, word);
}

/* Whether streams can write to the tape. */
static bool opened(struct comm *comm) {
  if (!comm->streamed) {
    comm->streamed = true;
    if (atomic_load_explicit(&found, memory_order_relaxed) == 0) {
      open_memory();
    }
  }
  return atomic_load_explicit(&found, memory_order_relaxed) != 0;
}

void stream_groups(struct comm *comm, cudaStream_t stream) {
  int capturing = NOT_CAPTURING;
  if (!comm->asks && comm->observes != OBSERVES_LAUNCHED && context_of(comm) != 0 && opened(comm) &&
      tape_observes(comm->tape) && driver.is_capturing(stream, &capturing) == 0 && capturing == NOT_CAPTURING) {
    comm->asks = depth_ask(context_of(comm));
  }
}

void stream_launches(struct comm *comm, uint64_t first, cudaStream_t stream) {
  if (!opened(comm)) {
    return;
  }
  const bool due = tape_mark_due(comm->tape, first);
  if (!due && !comm->captured) {
    return;
  }
  int capturing = NOT_CAPTURING;
  const bool answers = driver.is_capturing(stream, &capturing) == 0;
  comm->captured = answers && capturing != NOT_CAPTURING;
  if (comm->captured) {
    tape_captured(comm->tape, first);
  } else if (answers && due) {
    const bool same = comm->stream == stream;
    comm->stream = stream;
    comm->launches = true;
    begin(comm, same);
  }
}

/* A 24-bit number for a stream. The default streams have none: each device has its own. */
static uint32_t number_of(cudaStream_t stream) {
  const uint64_t handle = (uintptr_t)stream;
  return handle <= 2 ? 0 : (uint32_t)(handle * UINT64_C(0x9E3779B97F4A7C15) >> 40) | 1;
}

void stream_launched(struct comm *comm, ncclResult_t answer) {
  if (answer == ncclInProgress) {
    return;
  }
  if (comm->asks) {
    comm->asks = false;
    depth_launched(context_of(comm));
  }
  if (!comm->launches) {
    return;
  }
  comm->launches = false;
  if (answer != ncclSuccess) {
    return;
  }
  const uint32_t *word = tape_mark_word(comm->tape);
  if (word == NULL) {
    return;
  }
  if (comm->observes == OBSERVES_NEXT) {
    comm->observes = OBSERVES_LAUNCHED;
    if (comm->events[0] != NULL && !record(comm, 1)) {
      end_observation(comm);
    }
  }
  if (write_value(comm, word)) {
    tape_mark(comm->tape, comm->told, number_of(comm->stream));
  } else {
    end_observation(comm);
  }
  stream_check(comm);
}

void stream_check(struct comm *comm) {
  observed(comm);
  tape_mark_check(comm->tape, false);
}

void stream_close(struct comm *comm) {
  observed(comm);
  end_observation(comm);
}
