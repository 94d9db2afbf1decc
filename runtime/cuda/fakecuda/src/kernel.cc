// Kernels: functions of the library that is named in FAKECUDA_KERNELS, with each block of a grid as a real thread. For
// a kernel NAME, the library has the function NAME_host and the sizes of its parameters, NAME_params, ending with 0.
// Kernels that do nothing in PTX need no such function.
#include <cctype>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sched.h>
#include <thread>
#include <ucontext.h>

#include "fake.h"

// The argument of a kernel's function, which is called once for each thread of the grid.
struct fakecuda_thread {
  unsigned grid[3], block[3], block_index[3], thread_index[3];
  void *shared;
  void (*sync)(void *block_state);  // waits for all threads of the block
  void (*yield)(void *block_state); // lets other threads run
  void *block_state;
};

struct Function {
  Context *context;
  void (*host)(const fakecuda_thread *, void **);
  const unsigned long *params;
};

static const unsigned long no_params[] = {0};

struct Module {
  Context *context;
  std::string image;
  std::map<std::string, Function> functions;
};

static std::set<Module *> &modules() {
  static auto *all = new std::set<Module *>;
  return *all;
}

static void *library() {
  static void *opened = [] {
    const char *path = getenv("FAKECUDA_KERNELS");
    return path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  }();
  return opened;
}

// does_nothing tells whether a kernel in an image contains nothing but its end.
static bool does_nothing(const std::string &image, const std::string &name) {
  size_t entry = image.find(".entry " + name + "("), body = image.find('{', entry);
  if (entry == std::string::npos || body == std::string::npos) return false;
  std::string code;
  for (char c : image.substr(body + 1, image.find('}', body) - body - 1))
    if (!isspace(static_cast<unsigned char>(c))) code += c;
  return code == "ret;";
}

// The image is PTX or a cubin; only its names and its kernels that do nothing are looked at.
EXPORT int cuModuleLoadDataEx(Module **module, const char *image, unsigned count, int *options, void **values) {
  if (int r = begin(__func__)) return r;
  const char elf[] = "\x7f" "ELF";
  bool cubin = !strncmp(image, elf, 4);
  if (!cubin && !strstr(image, ".version")) {
    if (count == 2 && options[0] == 5)
      snprintf(static_cast<char *>(values[0]), size_t(values[1]), "ptxas fatal   : no .version directive");
    return INVALID_PTX;
  }
  std::lock_guard<std::mutex> lock(state().mutex);
  modules().insert(*module = new Module{current(), cubin ? "" : image, {}});
  return 0;
}

EXPORT int cuModuleUnload(Module *module) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!modules().erase(module)) return INVALID_HANDLE;
  for (auto &[name, f] : module->functions) state().live.erase(&f);
  return 0; // it stays in memory, since a stream may still reach a kernel of it
}

EXPORT int cuModuleGetFunction(Function **function, Module *module, const char *name) {
  if (int r = begin(__func__)) return r;
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!modules().count(module) || module->context != current()) return INVALID_HANDLE;
  if (module->image.size() && module->image.find(std::string(".entry ") + name + "(") == std::string::npos)
    return NOT_FOUND;
  Function &f = module->functions[name];
  f.context = current();
  if (does_nothing(module->image, name)) {
    f.host = nullptr;
    f.params = no_params;
    state().live.insert(*function = &f);
    return 0;
  }
  if (!library()) return NOT_FOUND;
  f.host = reinterpret_cast<void (*)(const fakecuda_thread *, void **)>(
      dlsym(library(), (std::string(name) + "_host").c_str()));
  f.params = static_cast<unsigned long *>(dlsym(library(), (std::string(name) + "_params").c_str()));
  if (!f.host || !f.params) return NOT_FOUND;
  state().live.insert(*function = &f);
  return 0;
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *function, int threads, size_t shared) {
  if (int r = begin(__func__)) return r;
  if (!alive(function)) return INVALID_HANDLE;
  if (threads < 1 || shared > (48 << 10)) return INVALID_VALUE;
  *blocks = threads > MAX_THREADS ? 0 : BLOCKS_EACH;
  return 0;
}

// The blocks that a device runs at once, on all streams.
struct Residency {
  std::mutex mutex;
  std::condition_variable changed;
  int blocks = 0;

  void enter() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return blocks < MULTIPROCESSORS * BLOCKS_EACH; });
    blocks++;
  }
  void leave() {
    std::lock_guard<std::mutex> lock(mutex);
    blocks--;
    changed.notify_all();
  }
};

static Residency &residency(int device) {
  static auto *all = new std::map<int, Residency>;
  std::lock_guard<std::mutex> lock(state().mutex);
  return (*all)[device];
}

// The threads of a block take turns on one thread of the operating system, each with a stack of its own: a thread that
// waits lets the next one run.
struct Block {
  const Function *function;
  void **params;
  fakecuda_thread first; // the first thread
  std::vector<uint64_t> shared;
  std::vector<ucontext_t> threads;
  std::vector<bool> ended;
  ucontext_t outside;
  unsigned turn, running;
  unsigned waiting, meetings; // how many threads wait in a sync, and how many syncs are complete

  // next gives the turn to the next thread that hasn't ended. When all threads have had theirs, other blocks may run.
  void next() {
    const unsigned was = turn;
    do {
      if (++turn == threads.size()) turn = 0, sched_yield();
    } while (ended[turn]);
    if (turn != was) swapcontext(&threads[was], &threads[turn]);
  }
};

static void yield_block(void *block) { static_cast<Block *>(block)->next(); }

static void sync_block(void *block) {
  Block *b = static_cast<Block *>(block);
  const unsigned meeting = b->meetings;
  if (++b->waiting == b->threads.size()) b->waiting = 0, b->meetings++;
  while (b->meetings == meeting) b->next();
}

static thread_local Block *block_here;

// run_thread is the entry point of each thread's stack.
static void run_thread() {
  Block *b = block_here;
  fakecuda_thread self = b->first;
  self.thread_index[0] = b->turn;
  b->function->host(&self, b->params);
  b->ended[b->turn] = true;
  if (--b->running == 0) setcontext(&b->outside);
  b->next(); // never returns
}

static void run_block(const Function *f, fakecuda_thread first, size_t shared, void **params) {
  constexpr size_t stack = 64 << 10;
  const unsigned n = first.block[0];
  std::vector<char> stacks(n * stack);
  Block b = {f, params, first, std::vector<uint64_t>(shared / 8 + 512), std::vector<ucontext_t>(n),
             std::vector<bool>(n), {}, 0, n, 0, 0};
  b.first.shared = b.shared.data();
  b.first.sync = sync_block, b.first.yield = yield_block;
  b.first.block_state = block_here = &b;
  for (unsigned i = 0; i < n; i++) {
    ucontext_t &c = b.threads[i];
    getcontext(&c);
    c.uc_stack.ss_sp = &stacks[i * stack], c.uc_stack.ss_size = stack;
    makecontext(&c, run_thread, 0);
  }
  swapcontext(&b.outside, &b.threads[0]);
}

EXPORT int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra) {
  if (int r = begin(__func__)) return r;
  if (!alive(f) || f->context != current()) return INVALID_HANDLE;
  if (!gx || gy != 1 || gz != 1 || !bx || by != 1 || bz != 1 || bx > MAX_THREADS || extra) return INVALID_VALUE;
  if (!f->host) return enqueue(__func__, stream, [] { return 0; });
  auto copies = std::make_shared<std::vector<std::vector<uint64_t>>>();
  for (int i = 0; f->params[i]; i++) {
    copies->emplace_back((f->params[i] + 7) / 8);
    memcpy(copies->back().data(), params[i], f->params[i]);
  }
  Residency *resident = &residency(f->context->device);
  return enqueue(__func__, stream, [=] {
    std::vector<void *> arguments;
    for (auto &c : *copies) arguments.push_back(c.data());
    std::vector<std::thread> blocks;
    for (unsigned b = 0; b < gx; b++) {
      fakecuda_thread self = {{gx, 1, 1}, {bx, 1, 1}, {b, 0, 0}, {0, 0, 0}, nullptr, nullptr, nullptr, nullptr};
      resident->enter();
      blocks.emplace_back([=, &arguments] {
        run_block(f, self, shared, arguments.data());
        resident->leave();
      });
    }
    for (auto &b : blocks) b.join();
    return 0;
  });
}

struct Attribute {
  int id, unused;
  char value[64];
};

struct Config {
  unsigned gx, gy, gz, bx, by, bz, shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
};

// Programmatic stream serialization allows a kernel to start early; this driver never does that.
EXPORT int cuLaunchKernelEx(const Config *c, Function *f, void **params, void **extra) {
  for (unsigned i = 0; i < c->count; i++)
    if (c->attributes[i].id != 6) return INVALID_VALUE;
  return cuLaunchKernel(f, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->stream, params, extra);
}
