// The driver, its devices and their primary contexts, and injected failures.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "fake.h"

State &state() {
  static State *s = new State; // never destroyed: streams may outlive main
  return *s;
}

static thread_local Context *now_current;

Context *current() { return now_current; }

bool alive(void *handle) {
  std::lock_guard<std::mutex> lock(state().mutex);
  return state().live.count(handle);
}

// One failure of FAKECUDA_FAIL: function:code[:n], where only the nth call fails. Several are separated by commas.
struct Failure {
  std::string function;
  int code, nth;
  std::atomic<int> calls{0};
};

static auto *failures = [] {
  auto *list = new std::list<Failure>;
  const char *value = getenv("FAKECUDA_FAIL");
  std::stringstream all(value ? value : "");
  for (std::string one; std::getline(all, one, ',');) {
    std::stringstream parts(one);
    std::string name, code, nth;
    std::getline(parts, name, ':');
    std::getline(parts, code, ':');
    std::getline(parts, nth, ':');
    Failure &f = list->emplace_back();
    f.function = name;
    f.code = atoi(code.c_str());
    f.nth = atoi(nth.c_str());
  }
  return list;
}();

static const char *value = getenv("FAKECUDA_DEVICES");
static const int count = value ? atoi(value) : 2;
static const bool divided = getenv("FAKECUDA_MIG");
const bool no_peers = getenv("FAKECUDA_NO_PEERS");
static const bool no_nvlink = getenv("FAKECUDA_NO_NVLINK");

static int failure(const char *function) {
  for (Failure &f : *failures)
    if (f.function == function && (++f.calls == f.nth || !f.nth)) return f.code;
  return 0;
}

int begin(const char *function, bool needs_context) {
  if (int code = failure(function)) {
    bool of_context = code == 700 || code == 702 || code == 710 || (code >= 714 && code <= 719);
    if (of_context && now_current) now_current->lost = code;
    return code;
  }
  State &s = state();
  std::scoped_lock lock(s.alone, s.mutex);
  if (!s.initialized) return NOT_INITIALIZED;
  if (!needs_context) return 0;
  if (!now_current) return INVALID_CONTEXT;
  if (!now_current->retained) return CONTEXT_IS_DESTROYED;
  return now_current->lost;
}

EXPORT int cuInit(unsigned flags) {
  if (int r = failure("cuInit")) return r;
  if (flags) return INVALID_VALUE;
  State &s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.initialized) return 0;
  if (count < 1) return NO_DEVICE;
  for (int i = 0; i < count; i++) {
    s.devices.push_back(new Context);
    s.devices.back()->device = i;
  }
  s.initialized = true;
  return 0;
}

EXPORT int cuDriverGetVersion(int *version) {
  *version = 12090;
  return 0;
}

static const struct {
  int code;
  const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

EXPORT int cuGetErrorName(int code, const char **text) {
  for (auto &e : errors)
    if (e.code == code) return *text = e.name, 0;
  return *text = nullptr, INVALID_VALUE;
}

EXPORT int cuGetErrorString(int code, const char **text) {
  for (auto &e : errors)
    if (e.code == code) return *text = e.text, 0;
  return *text = nullptr, INVALID_VALUE;
}

// device is called first by every function on a device.
static int device(const char *function, int d) {
  if (int r = begin(function, false)) return r;
  return d < 0 || d >= int(state().devices.size()) ? INVALID_DEVICE : 0;
}

EXPORT int cuDeviceGetCount(int *n) {
  if (int r = begin(__func__, false)) return r;
  *n = state().devices.size();
  return 0;
}

EXPORT int cuDeviceGet(int *d, int ordinal) {
  *d = ordinal;
  return device(__func__, ordinal);
}

EXPORT int cuDeviceGetUuid(void *uuid, int d) {
  if (int r = device(__func__, d)) return r;
  char text[17];
  snprintf(text, sizeof text, "fakecuda%08d", d);
  memcpy(uuid, text, 16);
  return 0;
}

// With FAKECUDA_MIG, every device is an instance, with an id of its own.
EXPORT int cuDeviceGetUuid_v2(void *uuid, int d) {
  int r = cuDeviceGetUuid(uuid, d);
  if (!r && divided) memcpy(uuid, "MIG-", 4);
  return r;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int d) {
  if (int r = device(__func__, d)) return r;
  static const std::map<int, int> values = {
      {1, MAX_THREADS}, {8, 48 << 10}, {10, 32}, {16, MULTIPROCESSORS}, {19, 1}, {20, 0}, {31, 1}, {41, 1},
      {75, 9}, {76, 0}, {97, 96 << 10}, {102, 1}, {103, 1}, {122, 1}, {123, 1}, {134, -1}};
  auto found = values.find(attribute);
  if (found == values.end()) return INVALID_VALUE;
  *value = found->second;
  return 0;
}

// With FAKECUDA_NO_PEERS, no device can access another's memory.
EXPORT int cuDeviceCanAccessPeer(int *can, int d, int peer) {
  if (int r = device(__func__, d)) return r;
  if (int r = device(__func__, peer)) return r;
  *can = d != peer && !no_peers;
  return 0;
}

// With FAKECUDA_NO_NVLINK, devices access each other's memory without native atomic operations.
EXPORT int cuDeviceGetP2PAttribute(int *value, int attribute, int d, int peer) {
  constexpr int native_atomics = 3;
  if (int r = cuDeviceCanAccessPeer(value, d, peer)) return r;
  if (attribute != native_atomics || d == peer) return INVALID_VALUE;
  if (no_nvlink) *value = 0;
  return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(Context **context, int d) {
  if (int r = device(__func__, d)) return r;
  State &s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  *context = s.devices[d];
  (*context)->retained++;
  return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int d) {
  if (int r = device(__func__, d)) return r;
  Context *c = state().devices[d];
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    if (!c->retained) return INVALID_CONTEXT;
    if (--c->retained) return 0;
    c->lost = 0;
    c->peers.clear();
  }
  destroy_streams(c);
  return 0;
}

EXPORT int cuCtxGetCurrent(Context **context) {
  *context = now_current;
  return 0;
}

EXPORT int cuCtxGetDevice(int *d) {
  if (int r = begin(__func__)) return r;
  *d = current()->device;
  return 0;
}

EXPORT int cuCtxSetCurrent(Context *context) {
  if (int r = begin(__func__, false)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  bool known = !context;
  for (Context *c : state().devices) known |= c == context;
  if (!known) return INVALID_CONTEXT;
  if (context && !context->retained) return CONTEXT_IS_DESTROYED;
  now_current = context;
  return 0;
}

EXPORT int cuCtxEnablePeerAccess(Context *peer, unsigned flags) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (flags) return INVALID_VALUE;
  if (peer == now_current) return INVALID_DEVICE;
  if (!peer || !peer->retained) return INVALID_CONTEXT;
  if (no_peers) return PEER_ACCESS_UNSUPPORTED;
  return now_current->peers.insert(peer).second ? 0 : PEER_ACCESS_ALREADY_ENABLED;
}
