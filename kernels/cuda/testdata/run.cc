// Runs kernels on the host, with each thread of each rank's grid as a real one. Commands come on the standard input,
// answers go to the standard output. Addresses are in the arena, whose address is the first answer:
//
//	W address bytes, then as many  writes memory
//	R address bytes                reads it
//	L ranks kernels, then of each kernel: blocks threads name-length, the name, the parameter of each rank
//	                               launches kernels, which a rank runs one after the other, as a stream does; they may
//	                               still run when the next command is read
//	J                              waits for all that runs
//
// Numbers have 8 bytes each.
#include "../args.h"
#include "../host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

static u64 number() {
  u64 n;
  if (fread(&n, sizeof n, 1, stdin) != 1) exit(0);
  return n;
}

typedef void (*Kernel)(const fakecuda_thread *, void **);

struct Block {
  pthread_barrier_t barrier;
  u64 shared[512];

  explicit Block(unsigned threads) { pthread_barrier_init(&barrier, nullptr, threads); }
  ~Block() { pthread_barrier_destroy(&barrier); }
};

static void sync_block(void *state) { pthread_barrier_wait(&static_cast<Block *>(state)->barrier); }

static void yield_block(void *) { sched_yield(); }

// A Worker is a thread that does one task after the other: starting a thread takes as long as many a kernel.
struct Worker {
  std::function<void()> task;
  std::binary_semaphore begin{0}, end{0};

  Worker() {
    std::thread([this] {
      for (;; end.release()) {
        begin.acquire();
        task();
      }
    }).detach();
  }
};

// Workers run all threads of one rank's kernel.
typedef std::deque<Worker> Workers;

struct Launch {
  Kernel kernel;
  unsigned blocks, threads;
  carillon_exchange_args args; // other kernels read its beginning

  // run ends when all threads of the grid have ended.
  void run(Workers &workers) {
    std::vector<std::unique_ptr<Block>> grid;
    void *params[] = {&args};
    while (workers.size() < blocks * threads) workers.emplace_back();
    for (unsigned b = 0; b < blocks; b++) {
      Block *block = grid.emplace_back(std::make_unique<Block>(threads)).get();
      for (unsigned t = 0; t < threads; t++) {
        Worker &w = workers[b * threads + t];
        w.task = [=, this, &params] {
          fakecuda_thread self = {{blocks, 1, 1},  {threads, 1, 1}, {b, 0, 0}, {t, 0, 0},
                                  block->shared,  sync_block,      yield_block, block};
          kernel(&self, params);
        };
        w.begin.release();
      }
    }
    for (unsigned i = 0; i < blocks * threads; i++) workers[i].end.acquire();
  }
};

// Kernels access the memory meanwhile: 4 bytes at a time, the unit that a test looks at.
static void copy_words(u32 *to, const u32 *from, u64 bytes) {
  for (u64 i = 0; i < bytes / 4; i++)
    __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

int main() {
  const u64 size = 64 << 20;
  void *arena = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fwrite(&arena, sizeof arena, 1, stdout);
  fflush(stdout);
  std::vector<std::thread> running;
  std::atomic<u64> ranks_run = 0;
  std::list<Workers> &idle = *new std::list<Workers>, &busy = *new std::list<Workers>; // live until the process ends
  for (int command; (command = getchar()) != EOF;) {
    switch (command) {
    case 'W': {
      u64 at = number(), bytes = number();
      std::vector<u32> data((bytes + 3) / 4);
      if (fread(data.data(), 1, bytes, stdin) != bytes) return 1;
      if (bytes % 4 == 0 && at % 4 == 0)
        copy_words(reinterpret_cast<u32 *>(at), data.data(), bytes);
      else
        memcpy(reinterpret_cast<void *>(at), data.data(), bytes);
      break;
    }
    case 'R': {
      u64 at = number(), bytes = number();
      std::vector<u32> data((bytes + 3) / 4);
      if (bytes % 4 == 0 && at % 4 == 0)
        copy_words(data.data(), reinterpret_cast<u32 *>(at), bytes);
      else
        memcpy(data.data(), reinterpret_cast<void *>(at), bytes);
      fwrite(data.data(), 1, bytes, stdout);
      fflush(stdout);
      break;
    }
    case 'L': {
      u64 ranks = number(), n = number();
      std::vector<std::vector<Launch>> streams(ranks);
      for (; n > 0; n--) {
        Launch launch = {};
        launch.blocks = (unsigned)number(), launch.threads = (unsigned)number();
        std::string name(number(), 0);
        if (fread(name.data(), 1, name.size(), stdin) != name.size()) return 1;
        launch.kernel = reinterpret_cast<Kernel>(dlsym(RTLD_DEFAULT, name.c_str()));
        if (!launch.kernel) {
          fprintf(stderr, "there is no %s\n", name.c_str());
          return 1;
        }
        for (auto &stream : streams) {
          if (fread(&launch.args, sizeof launch.args, 1, stdin) != 1) return 1;
          stream.push_back(launch);
        }
      }
      for (auto &stream : streams) {
        ranks_run++;
        if (idle.empty()) idle.emplace_back();
        busy.splice(busy.begin(), idle, idle.begin());
        running.emplace_back([stream, &ranks_run, &workers = busy.front()] {
          for (auto launch : stream) launch.run(workers);
          ranks_run--;
        });
      }
      break;
    }
    case 'P': {
      const u64 n = ranks_run;
      fwrite(&n, sizeof n, 1, stdout);
      fflush(stdout);
      break;
    }
    case 'J':
      for (auto &t : running) t.join();
      running.clear();
      idle.splice(idle.end(), busy);
      fputc('J', stdout);
      fflush(stdout);
      break;
    default:
      fprintf(stderr, "no command: %c\n", command);
      return 1;
    }
  }
  if (!running.empty()) _Exit(1); // a test has failed and exited
}
