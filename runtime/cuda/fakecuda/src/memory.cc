// Memory of devices and of the host's NUMA node, in memory files, which other processes can map; registered host
// memory.
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "fake.h"

static std::map<uint64_t, Allocation> &allocations() {
  static auto *m = new std::map<uint64_t, Allocation>;
  return *m;
}

static uint64_t next_id;

// Memory that has no address yet.
struct Shareable {
  size_t bytes;
  int device, fd;
};

static std::map<uint64_t, Shareable> &shareables() {
  static auto *m = new std::map<uint64_t, Shareable>;
  return *m;
}

Allocation *find(uint64_t address, uint64_t *base) {
  auto &all = allocations();
  auto after = all.upper_bound(address);
  if (after == all.begin()) return nullptr;
  auto at = std::prev(after);
  if (address - at->first >= at->second.bytes || at->second.kind == Allocation::ended) return nullptr;
  *base = at->first;
  return &at->second;
}

bool valid(uint64_t address, size_t bytes) {
  std::lock_guard<std::mutex> lock(state().mutex);
  uint64_t base;
  Allocation *a = find(address, &base);
  if (a) return bytes <= a->bytes - (address - base);
  auto after = allocations().lower_bound(address + bytes);
  if (after == allocations().begin()) return address;
  auto before = std::prev(after);
  return address && before->first + before->second.bytes <= address;
}

size_t used(int device) {
  size_t sum = 0;
  for (auto &[base, a] : allocations())
    if (a.device == device && a.kind == Allocation::plain) sum += a.bytes;
  for (auto &[handle, m] : shareables())
    if (m.device == device) sum += m.bytes;
  return sum;
}

// file makes a memory file, with the device in its name.
static int file(int device, size_t bytes) {
  char name[32];
  snprintf(name, sizeof name, "fakecuda-%d", device);
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, bytes)) {
    close(fd);
    return -1;
  }
  return fd;
}

EXPORT int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
  if (int r = begin(__func__)) return r;
  if (!bytes) return INVALID_VALUE;
  std::lock_guard<std::mutex> lock(state().mutex);
  int device = current()->device;
  if (bytes > MEMORY - used(device)) return OUT_OF_MEMORY;
  int fd = file(device, bytes);
  if (fd < 0) return OUT_OF_MEMORY;
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) {
    close(fd);
    return OUT_OF_MEMORY;
  }
  *memory = uint64_t(p);
  allocations()[*memory] = {Allocation::plain, bytes, device, fd, ++next_id};
  return 0;
}

// end removes the range that begins at an address.
static int end(uint64_t memory, Allocation::Kind kind) {
  auto at = allocations().find(memory);
  if (at == allocations().end() || at->second.kind != kind) return INVALID_VALUE;
  mmap(reinterpret_cast<void *>(memory), at->second.bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (at->second.fd >= 0) close(at->second.fd);
  at->second.kind = Allocation::ended;
  return 0;
}

EXPORT int cuCtxSynchronize();

EXPORT int cuMemFree_v2(uint64_t memory) {
  if (int r = begin(__func__)) return r;
  if (!memory) return 0;
  if (int r = cuCtxSynchronize()) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  return end(memory, Allocation::plain);
}

EXPORT int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uint64_t pointer) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  uint64_t base = 0;
  Allocation *a = find(pointer, &base);
  for (unsigned i = 0; i < count; i++) {
    void *v = values[i];
    switch (attributes[i]) {
    case 2: *static_cast<int *>(v) = !a ? 0 : a->kind == Allocation::registered || a->device == HOST ? 1 : 2; break;
    case 7: *static_cast<uint64_t *>(v) = a ? a->id : 0; break;
    case 9: *static_cast<int *>(v) = a ? a->device : -2; break;
    case 10: *static_cast<int *>(v) = a && a->kind == Allocation::plain; break;
    case 11: *static_cast<uint64_t *>(v) = base; break;
    case 12: *static_cast<size_t *>(v) = a ? a->bytes : 0; break;
    default: return INVALID_VALUE;
    }
  }
  return 0;
}

static int copy(const char *function, void *stream, uint64_t to, uint64_t from, size_t bytes) {
  if (!valid(to, bytes) || !valid(from, bytes)) return INVALID_VALUE;
  return enqueue(function, stream, [=] {
    memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
    return 0;
  });
}

// pageable tells whether memory is host memory that is not registered.
static bool pageable(uint64_t at) {
  std::lock_guard<std::mutex> lock(state().mutex);
  uint64_t base;
  return !find(at, &base);
}

// copy_staged returns once the source has been read; the copy itself ends later, as on a GPU.
static int copy_staged(uint64_t to, uint64_t from, size_t bytes) {
  if (!valid(to, bytes) || !valid(from, bytes)) return INVALID_VALUE;
  const std::string staged(reinterpret_cast<const char *>(from), bytes);
  return enqueue("cuMemcpy", nullptr, [=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    memcpy(reinterpret_cast<void *>(to), staged.data(), bytes);
    return 0;
  });
}

EXPORT int cuMemcpy(uint64_t to, uint64_t from, size_t bytes) {
  if (int r = begin(__func__)) return r;
  if (!bytes) return 0;
  if (pageable(from) && !pageable(to)) return copy_staged(to, from, bytes);
  if (int r = copy(__func__, nullptr, to, from, bytes)) return r;
  synchronize(current()->standard);
  return 0;
}

EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  if (int r = begin(__func__)) return r;
  return bytes ? copy(__func__, stream, to, from, bytes) : 0;
}

EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void *stream) {
  if (int r = begin(__func__)) return r;
  if (!valid(to, count)) return INVALID_VALUE;
  return enqueue(__func__, stream, [=] {
    memset(reinterpret_cast<void *>(to), value, count);
    return 0;
  });
}

// overlaps tells whether a range overlaps a known one; the caller holds the mutex.
static bool overlaps(uint64_t address, size_t bytes) {
  auto after = allocations().lower_bound(address + bytes);
  if (after == allocations().begin()) return false;
  auto &[base, a] = *std::prev(after);
  return base + a.bytes > address && a.kind != Allocation::ended;
}

EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
  if (int r = begin(__func__)) return r;
  if (!memory || !bytes || flags & ~15u) return INVALID_VALUE;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (overlaps(uint64_t(memory), bytes)) return HOST_MEMORY_ALREADY_REGISTERED;
  allocations()[uint64_t(memory)] = {Allocation::registered, bytes, current()->device, -1, ++next_id};
  return 0;
}

EXPORT int cuMemHostUnregister(void *memory) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> alone(state().alone);
  synchronize_all(); // every device can access it
  std::lock_guard<std::mutex> lock(state().mutex);
  auto at = allocations().find(uint64_t(memory));
  if (at == allocations().end() || at->second.kind != Allocation::registered) return HOST_MEMORY_NOT_REGISTERED;
  allocations().erase(at);
  return 0;
}

EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *device, void *memory, unsigned flags) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  uint64_t base;
  Allocation *a = find(uint64_t(memory), &base);
  if (flags || !a || a->kind != Allocation::registered) return INVALID_VALUE;
  *device = uint64_t(memory);
  return 0;
}

enum { ON_DEVICE = 1, ON_NUMA_NODE = 3 };

// The argument of cuMemCreate: pinned memory of a device or of the host's only node, which can be exported as a
// descriptor.
struct Properties {
  int type, handle_types, location_type, ordinal;

  int device() const { return location_type == ON_DEVICE ? ordinal : HOST; }
};

struct Access {
  int location_type, device, flags;
};

static bool proper(const Properties *p) {
  int ordinals = p->location_type == ON_DEVICE ? int(state().devices.size()) : p->location_type == ON_NUMA_NODE ? 1 : 0;
  return p->type == 1 && p->handle_types == 1 && p->ordinal >= 0 && p->ordinal < ordinals;
}

EXPORT int cuMemGetAllocationGranularity(size_t *bytes, const Properties *p, int option) {
  if (int r = begin(__func__, false)) return r;
  *bytes = GRANULARITY;
  return proper(p) && option <= 1 ? 0 : INVALID_VALUE;
}

EXPORT int cuMemCreate(uint64_t *memory, size_t bytes, const Properties *p, unsigned long long flags) {
  if (int r = begin(__func__)) return r;
  if (!proper(p) || !bytes || bytes % GRANULARITY || flags) return INVALID_VALUE;
  std::lock_guard<std::mutex> lock(state().mutex);
  int device = p->device();
  if (device != HOST && bytes > MEMORY - used(device)) return OUT_OF_MEMORY;
  int fd = file(device, bytes);
  if (fd < 0) return OUT_OF_MEMORY;
  shareables()[*memory = ++next_id] = {bytes, device, fd};
  return 0;
}

EXPORT int cuMemRelease(uint64_t memory) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  auto at = shareables().find(memory);
  if (at == shareables().end()) return INVALID_VALUE;
  close(at->second.fd);
  shareables().erase(at);
  return 0;
}

EXPORT int cuMemExportToShareableHandle(void *handle, uint64_t memory, int type, unsigned long long flags) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  auto at = shareables().find(memory);
  if (at == shareables().end() || type != 1 || flags) return INVALID_VALUE;
  int fd = fcntl(at->second.fd, F_DUPFD_CLOEXEC, 0);
  *static_cast<int *>(handle) = fd;
  return fd < 0 ? OPERATING_SYSTEM : 0;
}

EXPORT int cuMemImportFromShareableHandle(uint64_t *memory, void *handle, int type) {
  if (int r = begin(__func__)) return r;
  char link[64], name[64] = {};
  int fd = int(intptr_t(handle)), device;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  struct stat info;
  if (type != 1 || readlink(link, name, sizeof name - 1) < 0 || sscanf(name, "/memfd:fakecuda-%d", &device) != 1 ||
      fstat(fd, &info))
    return INVALID_VALUE;
  std::lock_guard<std::mutex> lock(state().mutex);
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return OPERATING_SYSTEM;
  shareables()[*memory = ++next_id] = {size_t(info.st_size), device, own};
  return 0;
}

// Reserved address ranges, with their sizes in bytes.
static std::map<uint64_t, size_t> &reservations() {
  static auto *m = new std::map<uint64_t, size_t>;
  return *m;
}

EXPORT int cuMemAddressReserve(uint64_t *base, size_t bytes, size_t alignment, uint64_t, unsigned long long flags) {
  if (int r = begin(__func__)) return r;
  if (!bytes || bytes % GRANULARITY || alignment > GRANULARITY || flags) return INVALID_VALUE;
  void *p = mmap(nullptr, bytes + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return OUT_OF_MEMORY;
  *base = (uint64_t(p) + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  std::lock_guard<std::mutex> lock(state().mutex);
  reservations()[*base] = bytes;
  return 0;
}

EXPORT int cuMemAddressFree(uint64_t base, size_t bytes) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  auto at = reservations().find(base);
  if (at == reservations().end() || at->second != bytes || overlaps(base, bytes)) return INVALID_VALUE;
  reservations().erase(at);
  return 0;
}

// The memory is mapped at once, but accessible only after cuMemSetAccess.
EXPORT int cuMemMap(uint64_t base, size_t bytes, size_t offset, uint64_t memory, unsigned long long flags) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  auto at = shareables().find(memory);
  auto within = reservations().find(base);
  if (at == shareables().end() || within == reservations().end() || bytes > within->second || offset || flags ||
      bytes != at->second.bytes || overlaps(base, bytes))
    return INVALID_VALUE;
  int fd = fcntl(at->second.fd, F_DUPFD_CLOEXEC, 0);
  void *p = mmap(reinterpret_cast<void *>(base), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (fd < 0 || p == MAP_FAILED) return OUT_OF_MEMORY;
  allocations()[base] = {Allocation::mapped, bytes, at->second.device, fd, ++next_id};
  return 0;
}

EXPORT int cuMemSetAccess(uint64_t base, size_t bytes, const Access *access, size_t count) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  auto at = allocations().find(base);
  if (at == allocations().end() || at->second.kind != Allocation::mapped || at->second.bytes != bytes || count != 1 ||
      access->location_type != ON_DEVICE || access->flags != 3)
    return INVALID_VALUE;
  if (at->second.device != HOST && access->device != at->second.device && no_peers) return INVALID_DEVICE;
  return mprotect(reinterpret_cast<void *>(base), bytes, PROT_READ | PROT_WRITE) ? OPERATING_SYSTEM : 0;
}

EXPORT int cuMemUnmap(uint64_t base, size_t) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  return end(base, Allocation::mapped);
}

// A legacy handle: it says where another process finds the memory file.
struct Handle {
  int pid, fd, device;
  size_t bytes;
  char rest[40];
};
static_assert(sizeof(Handle) == 64, "CUipcMemHandle has 64 bytes");

EXPORT int cuIpcGetMemHandle(Handle *handle, uint64_t memory) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  uint64_t base;
  Allocation *a = find(memory, &base);
  if (!a || a->kind != Allocation::plain) return INVALID_VALUE;
  *handle = {getpid(), a->fd, a->device, a->bytes, {}};
  return 0;
}

// The process that made the handle can't open it itself.
EXPORT int cuIpcOpenMemHandle_v2(uint64_t *memory, Handle handle, unsigned flags) {
  if (int r = begin(__func__)) return r;
  if (flags != 1 || !handle.bytes) return INVALID_VALUE;
  if (handle.pid == getpid()) return INVALID_CONTEXT;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return INVALID_HANDLE;
  void *p = mmap(nullptr, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) {
    close(fd);
    return OUT_OF_MEMORY;
  }
  std::lock_guard<std::mutex> lock(state().mutex);
  allocations()[*memory = uint64_t(p)] = {Allocation::opened, handle.bytes, handle.device, fd, ++next_id};
  return 0;
}

EXPORT int cuIpcCloseMemHandle(uint64_t memory) {
  if (int r = begin(__func__)) return r;
  if (int r = cuCtxSynchronize()) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  return end(memory, Allocation::opened);
}
