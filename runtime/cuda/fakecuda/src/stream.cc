// Streams and events.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "fake.h"

// How many microseconds longer operations take, from FAKECUDA_DELAY: function:microseconds, separated by commas.
static auto *delays = [] {
  auto *m = new std::map<std::string, long>;
  const char *value = getenv("FAKECUDA_DELAY");
  std::stringstream all(value ? value : "");
  for (std::string one; std::getline(all, one, ',');) {
    size_t colon = one.find(':');
    if (colon != one.npos) (*m)[one.substr(0, colon)] = atol(one.c_str() + colon + 1);
  }
  return m;
}();

static void work(Stream *s) {
  std::unique_lock<std::mutex> lock(s->mutex);
  for (;;) {
    s->changed.wait(lock, [&] { return !s->queue.empty() || s->ends; });
    if (s->queue.empty()) break;
    Operation operation = std::move(s->queue.front());
    s->queue.pop_front();
    lock.unlock();
    int r = operation();
    if (r) {
      std::lock_guard<std::mutex> all(state().mutex);
      s->context->lost = r;
    }
    lock.lock();
    s->done++;
    s->changed.notify_all();
  }
  lock.unlock();
  std::lock_guard<std::mutex> all(state().mutex);
  s->context->ending--;
  s->context->changed.notify_all();
  delete s;
}

static Stream *make(Context *context) {
  Stream *s = new Stream;
  s->context = context;
  sigset_t all, was; // signals are for the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &was);
  std::thread(work, s).detach();
  pthread_sigmask(SIG_SETMASK, &was, nullptr);
  return s;
}

// end is called with the state's mutex held.
static void end(Stream *s) {
  s->context->ending++;
  std::lock_guard<std::mutex> lock(s->mutex);
  s->ends = true;
  s->changed.notify_all();
}

static std::set<Stream *> &streams() {
  static auto *all = new std::set<Stream *>;
  return *all;
}

void destroy_streams(Context *context) {
  std::lock_guard<std::mutex> lock(state().mutex);
  for (auto at = streams().begin(); at != streams().end();) {
    Stream *s = *at;
    if (s->context != context) {
      ++at;
      continue;
    }
    state().live.erase(s);
    at = streams().erase(at);
    end(s);
  }
  context->standard = nullptr;
}

int stream_of(void *handle, Stream **stream) {
  std::lock_guard<std::mutex> lock(state().mutex);
  Context *c = current();
  if (!handle) {
    if (!c->standard) streams().insert(c->standard = make(c));
    *stream = c->standard;
    return 0;
  }
  *stream = static_cast<Stream *>(handle);
  if (!streams().count(*stream)) return INVALID_HANDLE;
  return (*stream)->context == c ? 0 : INVALID_HANDLE;
}

// put adds an operation to a stream that is not captured.
static void put(Stream *s, Operation operation) {
  std::lock_guard<std::mutex> lock(s->mutex);
  s->queue.push_back(std::move(operation));
  s->put++;
  s->changed.notify_all();
}

int enqueue(const char *function, void *handle, Operation operation) {
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  if (auto found = delays->find(function); found != delays->end())
    operation = [us = found->second, inner = std::move(operation)] {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
      return inner();
    };
  if (captured(s)) return capture(s, std::move(operation));
  put(s, std::move(operation));
  return 0;
}

void synchronize(Stream *s) {
  std::unique_lock<std::mutex> lock(s->mutex);
  uint64_t until = s->put;
  s->changed.wait(lock, [&] { return s->done >= until; });
}

// synchronize waits for a context's streams, including destroyed ones.
static void synchronize(Context *context) {
  std::set<Stream *> all;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    for (Stream *s : streams())
      if (s->context == context) all.insert(s);
  }
  for (Stream *s : all) synchronize(s);
  std::unique_lock<std::mutex> lock(state().mutex);
  context->changed.wait(lock, [=] { return context->ending == 0; });
}

void synchronize_all() {
  for (Context *c : state().devices) synchronize(c);
}

EXPORT int cuCtxSynchronize() {
  if (int r = begin(__func__)) return r;
  synchronize(current());
  return begin("");
}

EXPORT int cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
  if (int r = begin(__func__)) return r;
  (void)priority; // the nearest priority that exists is the only one
  if (flags > 1) return INVALID_VALUE;
  std::lock_guard<std::mutex> lock(state().mutex);
  streams().insert(*stream = make(current()));
  return 0;
}

EXPORT int cuStreamDestroy_v2(void *handle) {
  if (int r = begin(__func__)) return r;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  if (!handle) return INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(state().mutex);
  streams().erase(s);
  end(s);
  return 0;
}

EXPORT int cuStreamGetCtx(void *handle, Context **context) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (handle && !streams().count(static_cast<Stream *>(handle))) return INVALID_HANDLE;
  *context = handle ? static_cast<Stream *>(handle)->context : current();
  return 0;
}

EXPORT int cuStreamQuery(void *handle) {
  if (int r = begin(__func__)) return r;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  if (int r = forbid(s)) return r;
  std::lock_guard<std::mutex> lock(s->mutex);
  return s->done == s->put ? 0 : NOT_READY;
}

EXPORT int cuStreamSynchronize(void *handle) {
  if (int r = begin(__func__)) return r;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  if (int r = forbid(s)) return r;
  synchronize(s);
  return begin("");
}

EXPORT int cuStreamWriteValue32_v2(void *handle, uint64_t to, uint32_t value, unsigned flags) {
  if (int r = begin(__func__)) return r;
  std::unique_lock<std::mutex> lock(state().mutex);
  uint64_t base;
  if (to % 4 || flags > 1 || !find(to, &base)) return INVALID_VALUE;
  lock.unlock();
  return enqueue(__func__, handle, [=] {
    __atomic_store_n(reinterpret_cast<uint32_t *>(to), value, __ATOMIC_RELEASE);
    return 0;
  });
}

// greater or equal, cyclically: the only comparison supported
EXPORT int cuStreamWaitValue32_v2(void *handle, uint64_t at, uint32_t value, unsigned flags) {
  if (int r = begin(__func__)) return r;
  std::unique_lock<std::mutex> lock(state().mutex);
  uint64_t base;
  if (at % 4 || flags || !find(at, &base)) return INVALID_VALUE;
  lock.unlock();
  return enqueue(__func__, handle, [=] {
    while (int32_t(__atomic_load_n(reinterpret_cast<uint32_t *>(at), __ATOMIC_ACQUIRE) - value) < 0) usleep(20);
    return 0;
  });
}

EXPORT int cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
  if (int r = begin(__func__)) return r;
  return enqueue(__func__, handle, [=] {
    function(data);
    return 0;
  });
}

EXPORT int cuEventCreate(Event **event, unsigned flags) {
  if (int r = begin(__func__)) return r;
  if (flags & ~3u) return INVALID_VALUE; // 4, for other processes, isn't supported
  Event *e = *event = new Event;
  e->context = current();
  e->timing = !(flags & 2);
  std::lock_guard<std::mutex> lock(state().mutex);
  state().live.insert(e);
  return 0;
}

// The event stays in memory, since a stream may still reach it.
EXPORT int cuEventDestroy_v2(Event *event) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  return state().live.erase(event) ? 0 : INVALID_HANDLE;
}

EXPORT int cuEventRecord(Event *event, void *handle) {
  if (int r = begin(__func__)) return r;
  if (!alive(event) || event->context != current()) return INVALID_HANDLE;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  capture_record(s, event);
  if (captured(s)) return 0;
  uint64_t ticket;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    ticket = ++event->recorded;
  }
  return enqueue(__func__, handle, [=] {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->passed = std::max(event->passed, ticket);
    event->when = std::chrono::steady_clock::now();
    event->changed.notify_all();
    return 0;
  });
}

EXPORT int cuStreamWaitEvent(void *handle, Event *event, unsigned flags) {
  if (int r = begin(__func__)) return r;
  if (flags > 1) return INVALID_VALUE;
  if (!alive(event)) return INVALID_HANDLE;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  if (int r = capture_wait(s, event); r >= 0) return r;
  uint64_t ticket;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    ticket = event->recorded;
  }
  return enqueue(__func__, handle, [=] {
    std::unique_lock<std::mutex> lock(event->mutex);
    event->changed.wait(lock, [&] { return event->passed >= ticket; });
    return 0;
  });
}

EXPORT int cuEventQuery(Event *event) {
  if (int r = begin(__func__)) return r;
  if (!alive(event)) return INVALID_HANDLE;
  if (event->capture) return CAPTURED_EVENT;
  std::lock_guard<std::mutex> lock(event->mutex);
  return event->passed >= event->recorded ? 0 : NOT_READY;
}

EXPORT int cuEventSynchronize(Event *event) {
  if (int r = begin(__func__)) return r;
  if (!alive(event)) return INVALID_HANDLE;
  if (event->capture) return CAPTURED_EVENT;
  std::unique_lock<std::mutex> lock(event->mutex);
  uint64_t until = event->recorded;
  event->changed.wait(lock, [&] { return event->passed >= until; });
  return 0;
}

EXPORT int cuEventElapsedTime(float *milliseconds, Event *from, Event *to) {
  if (int r = begin(__func__)) return r;
  for (Event *e : {from, to}) {
    if (!alive(e) || !e->timing) return INVALID_HANDLE;
    std::lock_guard<std::mutex> lock(e->mutex);
    if (!e->recorded) return INVALID_HANDLE;
    if (e->passed < e->recorded) return NOT_READY;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
  return 0;
}
