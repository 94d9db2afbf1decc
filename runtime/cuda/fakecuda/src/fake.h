// A CUDA driver on host memory. Device memory is in memory files, a stream is a thread, and every handle is checked, so
// that mistakes give errors, as with a real driver.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = uint64_t;

enum : int {
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_PTX = 218,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  PEER_ACCESS_UNSUPPORTED = 217,
  OPERATING_SYSTEM = 304,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  PEER_ACCESS_ALREADY_ENABLED = 704,
  CONTEXT_IS_DESTROYED = 709,
  HOST_MEMORY_ALREADY_REGISTERED = 712,
  HOST_MEMORY_NOT_REGISTERED = 713,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_MERGE = 902,
  CAPTURE_UNJOINED = 904,
  CAPTURE_ISOLATION = 905,
  CAPTURED_EVENT = 907,
};

constexpr int MULTIPROCESSORS = 8, BLOCKS_EACH = 2, MAX_THREADS = 32;
constexpr size_t MEMORY = size_t(1) << 30, GRANULARITY = size_t(2) << 20;

struct Context;
struct Event;
struct Capture;

// An operation of a stream. It returns 0, or the code of a failure.
using Operation = std::function<int()>;

// A stream: a thread that runs its operations in order.
struct Stream {
  Context *context;
  std::mutex mutex;
  std::condition_variable changed;
  std::list<Operation> queue;
  uint64_t put = 0, done = 0; // numbers of operations
  bool ends = false;

  std::shared_ptr<Capture> capture; // the capture that it is part of
  int branch = 0;
  std::vector<int> after; // the nodes that its next node comes after
};

struct Context {
  int device, retained = 0;
  int lost = 0; // the code that every call returns after a failure on the device was seen
  Stream *standard = nullptr;
  int ending = 0;                  // how many destroyed streams still have work
  std::condition_variable changed; // notified when ending changes; used with the state's mutex
  std::set<Context *> peers;
};

struct Event {
  Context *context;
  bool timing;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, passed = 0;
  std::chrono::steady_clock::time_point when;

  std::shared_ptr<Capture> capture; // the capture that it was recorded in
  int node = -1;
  std::vector<int> after;
};

// All live objects. One mutex guards them all; it is never held during a wait.
struct State {
  std::mutex mutex;
  std::mutex alone; // held by a call that waits for the devices, and makes all other calls wait
  bool initialized = false;
  std::vector<Context *> devices;
  std::set<void *> live; // events, functions, graphs and executables
};
State &state();
extern const bool no_peers; // FAKECUDA_NO_PEERS

// A range of memory. A range that has ended stays here, and its addresses are never reused, so that its use is an
// error.
struct Allocation {
  enum Kind { plain, opened, mapped, registered, ended } kind;
  size_t bytes;
  int device, fd; // device may be HOST
  uint64_t id;
};
constexpr int HOST = -1;
// find returns the allocation that contains an address; the caller holds the state's mutex.
Allocation *find(uint64_t address, uint64_t *base);
// valid says whether bytes at an address are all in one allocation, or all in plain host memory.
bool valid(uint64_t address, size_t bytes);
size_t used(int device);

Context *current();
// begin is called first by every function: it checks whether the function is to fail (FAKECUDA_FAIL) or may not be
// called.
int begin(const char *function, bool needs_context = true);
// enqueue adds an operation to a stream, or to the graph that is captured from it.
int enqueue(const char *function, void *stream, Operation operation);
int stream_of(void *handle, Stream **stream);
void synchronize(Stream *stream);
// synchronize_all waits for the streams of all devices.
void synchronize_all();
void destroy_streams(Context *context);
bool alive(void *handle);

// captured tells whether a stream is captured; forbid fails a call that isn't allowed during capture, and the capture
// with it.
bool captured(Stream *stream);
int forbid(Stream *stream);
// capture adds an operation to the stream's graph, as a node.
int capture(Stream *stream, Operation operation);
// capture_record and capture_wait are for events. capture_wait returns -1 if neither its stream nor its event is
// captured.
int capture_record(Stream *stream, Event *event);
int capture_wait(Stream *stream, Event *event);
