// Graphs: the operations that are enqueued on captured streams. Each stream of a capture is a branch. When the graph is
// launched, each branch runs on a thread of its own.
#include <thread>

#include "fake.h"

struct Node {
  int branch;
  std::vector<int> after; // nodes of other branches that must be done
  Operation operation;
};

struct Graph {
  std::vector<Node> nodes; // in an order in which they can run
  int branches = 0;
};

struct Executable {
  std::shared_ptr<Graph> graph;
  std::mutex running; // launches of one executable don't overlap
};

static std::mutex &mutex() {
  static auto *m = new std::mutex;
  return *m;
}

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::vector<Stream *> streams; // by branch
  bool invalid = false;
};

// last is the last node of a stream's branch in its capture, or -1.
static int last(const Stream *s) {
  auto &nodes = s->capture->graph->nodes;
  for (int i = int(nodes.size()) - 1; i >= 0; i--)
    if (nodes[i].branch == s->branch) return i;
  return -1;
}

bool captured(Stream *s) {
  std::lock_guard<std::mutex> lock(mutex());
  return s->capture != nullptr;
}

int forbid(Stream *s) {
  std::lock_guard<std::mutex> lock(mutex());
  if (!s->capture) return 0;
  s->capture->invalid = true;
  return CAPTURE_UNSUPPORTED;
}

int capture(Stream *s, Operation operation) {
  std::lock_guard<std::mutex> lock(mutex());
  if (s->capture->invalid) return CAPTURE_INVALIDATED;
  s->capture->graph->nodes.push_back({s->branch, std::move(s->after), std::move(operation)});
  s->after.clear();
  return 0;
}

int capture_record(Stream *s, Event *e) {
  std::lock_guard<std::mutex> lock(mutex());
  e->capture = s->capture;
  if (!s->capture) return 0;
  e->node = last(s);
  e->after = s->after;
  return 0;
}

int capture_wait(Stream *s, Event *e) {
  std::lock_guard<std::mutex> lock(mutex());
  if (!e->capture && !s->capture) return -1; // neither: not part of a graph
  if (!e->capture) {
    s->capture->invalid = true;
    return CAPTURE_ISOLATION;
  }
  if (s->capture && s->capture != e->capture) return CAPTURE_MERGE;
  if (!s->capture) {
    s->capture = e->capture;
    s->branch = s->capture->graph->branches++;
    s->capture->streams.push_back(s);
  }
  if (e->node >= 0) s->after.push_back(e->node);
  s->after.insert(s->after.end(), e->after.begin(), e->after.end());
  return 0;
}

EXPORT int cuStreamBeginCapture_v2(void *handle, int mode) {
  if (int r = begin(__func__)) return r;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  if (!handle) return CAPTURE_UNSUPPORTED; // the default stream
  if (mode < 0 || mode > 2) return INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex());
  if (s->capture) return INVALID_VALUE;
  s->capture = std::make_shared<Capture>();
  s->capture->streams.push_back(s);
  s->branch = s->capture->graph->branches++;
  return 0;
}

EXPORT int cuStreamIsCapturing(void *handle, int *status) {
  if (int r = begin(__func__)) return r;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  std::lock_guard<std::mutex> lock(mutex());
  *status = !s->capture ? 0 : s->capture->invalid ? 2 : 1;
  return 0;
}

EXPORT int cuStreamEndCapture(void *handle, Graph **graph) {
  if (int r = begin(__func__)) return r;
  Stream *s;
  if (int r = stream_of(handle, &s)) return r;
  std::lock_guard<std::mutex> lock(mutex());
  std::shared_ptr<Capture> c = s->capture;
  if (!c || s->branch) return INVALID_VALUE;
  auto &nodes = c->graph->nodes;
  std::vector<bool> reached(nodes.size());
  std::vector<int> todo = s->after;
  if (last(s) >= 0) todo.push_back(last(s));
  while (!todo.empty()) {
    int i = todo.back();
    todo.pop_back();
    if (reached[i]) continue;
    reached[i] = true;
    todo.insert(todo.end(), nodes[i].after.begin(), nodes[i].after.end());
    for (int before = i - 1; before >= 0; before--)
      if (nodes[before].branch == nodes[i].branch) {
        todo.push_back(before);
        break;
      }
  }
  bool joined = true;
  for (Stream *branch : c->streams) {
    if (last(branch) >= 0 && !reached[last(branch)]) joined = false;
    branch->after.clear();
  }
  for (Stream *branch : c->streams) branch->capture = nullptr;
  if (c->invalid) return CAPTURE_INVALIDATED;
  if (!joined) return CAPTURE_UNJOINED;
  *graph = new Graph(*c->graph);
  std::lock_guard<std::mutex> all(state().mutex);
  state().live.insert(*graph);
  return 0;
}

// Destroys the object of a live handle.
static int destroy(void *handle) {
  std::lock_guard<std::mutex> lock(state().mutex);
  return state().live.erase(handle) ? 0 : INVALID_VALUE;
}

EXPORT int cuGraphDestroy(Graph *graph) {
  if (int r = begin(__func__)) return r;
  return destroy(graph);
}

EXPORT int cuGraphInstantiateWithFlags(Executable **exec, Graph *graph, unsigned long long flags) {
  if (int r = begin(__func__)) return r;
  if (flags || !alive(graph)) return INVALID_VALUE;
  *exec = new Executable;
  (*exec)->graph = std::make_shared<Graph>(*graph);
  std::lock_guard<std::mutex> lock(state().mutex);
  state().live.insert(*exec);
  return 0;
}

EXPORT int cuGraphExecDestroy(Executable *exec) {
  if (int r = begin(__func__)) return r;
  return destroy(exec);
}

static int run(const Graph &graph) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> done(graph.nodes.size());
  int result = 0;
  std::vector<std::thread> branches;
  for (int b = 0; b < graph.branches; b++)
    branches.emplace_back([&, b] {
      for (size_t i = 0; i < graph.nodes.size(); i++) {
        const Node &node = graph.nodes[i];
        if (node.branch != b) continue;
        std::unique_lock<std::mutex> lock(mutex);
        for (int before : node.after) changed.wait(lock, [&] { return done[before]; });
        lock.unlock();
        int r = node.operation();
        lock.lock();
        if (r) result = r;
        done[i] = true;
        changed.notify_all();
      }
    });
  for (auto &b : branches) b.join();
  return result;
}

EXPORT int cuGraphLaunch(Executable *exec, void *stream) {
  if (int r = begin(__func__)) return r;
  if (!alive(exec)) return INVALID_VALUE;
  Stream *s;
  if (int r = stream_of(stream, &s)) return r;
  if (captured(s)) return forbid(s); // a graph within a graph, which nobody needs
  return enqueue(__func__, stream, [=, graph = exec->graph] {
    std::lock_guard<std::mutex> lock(exec->running);
    return run(*graph);
  });
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  static thread_local int is = 0;
  if (*mode < 0 || *mode > 2) return INVALID_VALUE;
  std::swap(*mode, is);
  return 0;
}
