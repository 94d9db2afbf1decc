// What the kernels need from the machine that they run on. The same sources are compiled twice: as CUDA, for a GPU, and
// as C++, for the host, where each thread of a grid is a real one (tests run them that way, under ThreadSanitizer).
#pragma once

#include "args.h"

#define UNLIKELY(condition) __builtin_expect(condition, 0)

#define KERNEL(name) KERNEL_WITH(name, carillon_args)

#ifdef __CUDA__

#define DEVICE __attribute__((device)) static inline
#define GENERIC __attribute__((device)) inline
#define RARE __attribute__((device, noinline)) // off the fast path: not inlined, to keep the fast path small
#define UNROLL _Pragma("unroll")
#define LOOP _Pragma("nounroll")

// A kernel may be started while the previous one on its stream ends. It does nothing before await_predecessor, which
// returns when the previous kernel is complete and its results are visible. allow_successor lets the next kernel start,
// once all blocks of this one have called it. GPUs before sm_90 don't have these instructions: in their PTX they are
// comments, which cuda.go turns into instructions.
DEVICE void await_predecessor() { asm volatile("// griddepcontrol.wait;" ::: "memory"); }

DEVICE void allow_successor() { asm volatile("// griddepcontrol.launch_dependents;" ::: "memory"); }

#define GLOBAL extern "C" __attribute__((global, launch_bounds(carillon_max_threads, 1)))

#define KERNEL_WITH(name, Args)                                                                                        \
  DEVICE void name##_body(const Grid &g, const Args &a);                                                               \
  GLOBAL void name(const Args a) {                                                                                     \
    await_predecessor();                                                                                               \
    name##_body(Grid::of({}), a);                                                                                      \
  }                                                                                                                    \
  DEVICE void name##_body(const Grid &g, const Args &a)

// A warp's threads run together.
constexpr u32 warp = 32;

// Grid is a thread's position in its launch. A function off the fast path gets a Thread and finds the position itself,
// since values kept for a call take registers from all.
struct Thread {};

struct Grid {
  u32 block, blocks, thread, threads;

  GENERIC static Grid of(Thread) {
    return {(u32)__nvvm_read_ptx_sreg_ctaid_x(), (u32)__nvvm_read_ptx_sreg_nctaid_x(),
            (u32)__nvvm_read_ptx_sreg_tid_x(), (u32)__nvvm_read_ptx_sreg_ntid_x()};
  }

  GENERIC Thread self() const { return {}; }

  // sync waits for all threads of the block.
  GENERIC void sync() const { asm volatile("bar.sync 0;" ::: "memory"); }

  // shared is memory that the threads of a block share. It is uninitialized.
  template <class T> GENERIC T &shared() const {
    static __attribute__((shared)) T of_block;
    return of_block;
  }
};

// A word that threads of a block share. A thread that reads a stored value also sees what the storing thread did
// before.
DEVICE void store_shared(u32 *at, u32 v) { asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory"); }

DEVICE u32 load_shared(const u32 *at) {
  u32 v;
  asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}

// A packet is two halves of 8 bytes, each of which is read and written atomically.
struct Packet {
  u32 low, flag_low, high, flag_high;
};

DEVICE void store_packet(u64 at, const Packet &p) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(p.low), "r"(p.flag_low),
               "r"(p.high), "r"(p.flag_high)
               : "memory");
}

DEVICE Packet load_packet(u64 at) {
  Packet p;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.low), "=r"(p.flag_low), "=r"(p.high), "=r"(p.flag_high)
               : "l"(at)
               : "memory");
  return p;
}

// An entry is a packet that also says that all earlier work on its rank's stream is complete. A thread that loads an
// entry reads the rank's buffers next, of which another kernel may have left stale lines in the L1 cache: an acquire
// drops these.
DEVICE void store_entry(u64 at, const Packet &p) { store_packet(at, p); }

DEVICE Packet load_entry(u64 at) {
  Packet p;
  asm volatile("ld.acquire.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.low), "=r"(p.flag_low), "=r"(p.high), "=r"(p.flag_high)
               : "l"(at)
               : "memory");
  return p;
}

DEVICE u32 load_u32(u64 at) {
  u32 v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}

DEVICE u64 load_u64(u64 at) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}

DEVICE void store_u64(u64 at, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

// swap_u64 stores a value if the word still has the previous one.
DEVICE bool swap_u64(u64 at, u64 before, u64 v) {
  u64 was;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(was)
               : "l"(at), "l"(before), "l"(v)
               : "memory");
  return was == before;
}

// first_of_warp returns true for one of the threads of a warp that are active together.
DEVICE bool first_of_warp() {
  u32 here, before;
  asm volatile("activemask.b32 %0; mov.u32 %1, %%lanemask_lt;" : "=r"(here), "=r"(before));
  return (here & before) == 0;
}

// A flag says that data is there: a fence separates the data from the store of the flag.
DEVICE void store_flag(u64 at, u32 v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

DEVICE u32 load_flag(u64 at) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}

// Vector is 16 bytes of a buffer, the most that a thread reads or writes at once.
struct Vector {
  u64 low, high;
};

DEVICE Vector load_vector(u64 at) {
  Vector v;
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(at) : "memory");
  return v;
}

DEVICE void store_vector(u64 at, const Vector &v) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(v.low), "l"(v.high) : "memory");
}

// A quad is four lines of 128 bytes, which a warp stores and loads at once, 16 bytes per thread. NVLink and a GPU's
// memory keep together what 8 threads store into a line, on which NCCL's LL128 also relies. So one flag is enough for a
// line. It replaces 8 bytes of the data of the line's last thread: in the first of two lines, these bytes move to the
// last thread of the second line, which has no data of its own.
constexpr u32 quad_threads = 32, quad_words = 2;

typedef Vector RawPiece;

// The threads of a quad have 15 pieces of data per half warp: the last thread has none.
DEVICE u64 quad_offset(u64 piece) { return piece / 16 * 240 + piece % 16 * 16; }
DEVICE bool quad_has_data(u64 piece) { return piece % 16 != 15; }

DEVICE u32 half_warp_thread() { return __nvvm_read_ptx_sreg_tid_x() % 16; }

// of_half_warp returns the value of one thread of each half of the warp.
DEVICE u64 of_half_warp(u64 value, u32 thread) {
  u32 low = (u32)value, high = (u32)(value >> 32);
  asm volatile("shfl.sync.idx.b32 %0, %0, %2, 0x101f, 0xffffffff;\n\t"
               "shfl.sync.idx.b32 %1, %1, %2, 0x101f, 0xffffffff;"
               : "+r"(low), "+r"(high)
               : "r"(thread));
  return low | (u64)high << 32;
}

DEVICE bool any_of_quad(bool x) {
  u32 any;
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %1, 0;\n\tvote.sync.any.pred p, p, 0xffffffff;\n\t"
               "selp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(any)
               : "r"((u32)x));
  return any;
}

DEVICE void store_quad(u64 at, const u64 (&data)[quad_words], u32 flag) {
  const u32 thread = half_warp_thread();
  const u64 taken = of_half_warp(data[1], 7);
  const u64 low = thread == 15 ? taken : data[0], high = thread % 8 == 7 ? (u64)flag << 32 : data[1];
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
}

DEVICE RawPiece load_quad(u64 at) {
  RawPiece p;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(p.low), "=l"(p.high) : "l"(at) : "memory");
  return p;
}

DEVICE bool quad_complete(const RawPiece &p, u32 flag, u64 (&data)[quad_words], u32 (&seen)[2]) {
  const u32 thread = half_warp_thread();
  seen[0] = seen[1] = thread % 8 == 7 ? (u32)(p.high >> 32) : flag;
  if (any_of_quad(seen[0] != flag)) return false;
  const u64 taken = of_half_warp(p.low, 15);
  data[0] = p.low;
  data[1] = thread == 7 ? taken : p.high;
  return true;
}

DEVICE void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// await_loads returns when the loads that a value depends on are complete. Otherwise they may be in flight beyond a
// barrier, until the value is used. The word is in shared memory, and nothing reads it.
DEVICE void await_loads(u32 *word, u64 value) {
  asm volatile("st.volatile.u32 [%0], %1;" ::"l"(word), "r"((u32)value) : "memory");
}

// cycles counts the processor's cycles.
DEVICE u64 cycles() {
  u64 t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t));
  return t;
}

DEVICE void give_way() {}

// now returns the GPU's time in nanoseconds.
DEVICE u64 now() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

#else

#include <sched.h>
#include <time.h>

#define DEVICE static inline
#define GENERIC inline
#define RARE inline
#define UNROLL
#define LOOP

#include "host.h"

// Every thread runs by itself.
constexpr u32 warp = 1;

// The block whose threads run on this thread of the operating system.
inline thread_local struct {
  void (*yield)(void *);
  void *state;
} here;

#define KERNEL_WITH(name, Args)                                                                                        \
  static void name##_body(const Grid &g, const Args &a);                                                               \
  extern "C" const unsigned long name##_params[] = {sizeof(Args), 0};                                                  \
  extern "C" void name##_host(const fakecuda_thread *t, void **params) {                                               \
    here = {t->yield, t->block_state};                                                                                 \
    name##_body(Grid::of(t), *static_cast<const Args *>(params[0]));                                                   \
  }                                                                                                                    \
  static void name##_body(const Grid &g, const Args &a)

typedef const fakecuda_thread *Thread;

struct Grid {
  u32 block, blocks, thread, threads;
  Thread host;

  static Grid of(Thread t) {
    return {t->block_index[0], t->grid[0], t->thread_index[0], t->block[0], t};
  }

  Thread self() const { return host; }

  void sync() const { host->sync(host->block_state); }

  template <class T> T &shared() const {
    static_assert(sizeof(T) <= 4096, "there is no more");
    return *static_cast<T *>(host->shared);
  }
};

DEVICE void store_shared(u32 *at, u32 v) { __atomic_store_n(at, v, __ATOMIC_RELEASE); }

DEVICE u32 load_shared(const u32 *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

struct Packet {
  u32 low, flag_low, high, flag_high;
};

DEVICE void store_packet(u64 at, const Packet &p) {
  auto *half = reinterpret_cast<u64 *>(at);
  __atomic_store_n(half, p.low | (u64)p.flag_low << 32, __ATOMIC_RELAXED);
  __atomic_store_n(half + 1, p.high | (u64)p.flag_high << 32, __ATOMIC_RELAXED);
}

DEVICE Packet load_packet(u64 at) {
  auto *half = reinterpret_cast<u64 *>(at);
  u64 low = __atomic_load_n(half, __ATOMIC_RELAXED), high = __atomic_load_n(half + 1, __ATOMIC_RELAXED);
  return {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
}

DEVICE void store_entry(u64 at, const Packet &p) {
  auto *half = reinterpret_cast<u64 *>(at);
  __atomic_store_n(half, p.low | (u64)p.flag_low << 32, __ATOMIC_RELEASE);
  __atomic_store_n(half + 1, p.high | (u64)p.flag_high << 32, __ATOMIC_RELEASE);
}

DEVICE Packet load_entry(u64 at) {
  auto *half = reinterpret_cast<u64 *>(at);
  u64 low = __atomic_load_n(half, __ATOMIC_ACQUIRE), high = __atomic_load_n(half + 1, __ATOMIC_ACQUIRE);
  return {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
}

// ThreadSanitizer doesn't support fences; here the flags have their effect.
DEVICE void store_flag(u64 at, u32 v) { __atomic_store_n(reinterpret_cast<u32 *>(at), v, __ATOMIC_RELEASE); }

DEVICE u32 load_flag(u64 at) { return __atomic_load_n(reinterpret_cast<u32 *>(at), __ATOMIC_ACQUIRE); }

DEVICE u32 load_u32(u64 at) { return __atomic_load_n(reinterpret_cast<u32 *>(at), __ATOMIC_RELAXED); }

DEVICE u64 load_u64(u64 at) { return __atomic_load_n(reinterpret_cast<u64 *>(at), __ATOMIC_RELAXED); }

DEVICE void store_u64(u64 at, u64 v) { __atomic_store_n(reinterpret_cast<u64 *>(at), v, __ATOMIC_RELAXED); }

DEVICE bool swap_u64(u64 at, u64 before, u64 v) {
  return __atomic_compare_exchange_n(reinterpret_cast<u64 *>(at), &before, v, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

DEVICE bool first_of_warp() { return true; }

struct Vector {
  u64 low, high;
};

DEVICE Vector load_vector(u64 at) { return *reinterpret_cast<const Vector *>(at); }

DEVICE void store_vector(u64 at, const Vector &v) { *reinterpret_cast<Vector *>(at) = v; }

// Here one thread has a whole quad, and the flags say when it is complete.
constexpr u32 quad_threads = 1, quad_words = 60;

struct RawPiece {
  u64 w[64];
};

// Word i of the data is at place_in_quad(i): of 32 places, 15 and 31 are flags, and 30 holds the word whose place the
// first flag takes.
constexpr u32 place_in_quad(u32 i) { return i / 30 * 32 + (i % 30 == 15 ? 30 : i % 30); }

DEVICE u64 quad_offset(u64 piece) { return piece * carillon_quad_payload; }
DEVICE bool quad_has_data(u64) { return true; }

DEVICE bool any_of_quad(bool x) { return x; }

DEVICE void store_quad(u64 at, const u64 (&data)[quad_words], u32 flag) {
  auto *word = reinterpret_cast<u64 *>(at);
  for (u32 i = 0; i < quad_words; i++) __atomic_store_n(word + place_in_quad(i), data[i], __ATOMIC_RELAXED);
  for (u32 i = 15; i < 64; i += 16) __atomic_store_n(word + i, (u64)flag << 32, __ATOMIC_RELEASE);
}

DEVICE RawPiece load_quad(u64 at) {
  auto *word = reinterpret_cast<u64 *>(at);
  RawPiece p;
  for (u32 i = 64; i-- > 0;) p.w[i] = __atomic_load_n(word + i, __ATOMIC_ACQUIRE);
  return p;
}

DEVICE bool quad_complete(const RawPiece &p, u32 flag, u64 (&data)[quad_words], u32 (&seen)[2]) {
  for (u32 i = 15; i < 64; i += 16)
    if ((seen[0] = seen[1] = (u32)(p.w[i] >> 32)) != flag) return false;
  for (u32 i = 0; i < quad_words; i++) data[i] = p.w[place_in_quad(i)];
  return true;
}

DEVICE void allow_successor() {}

DEVICE void fence() {}

DEVICE void await_loads(u32 *, u64) {}

DEVICE void give_way() { here.yield(here.state); }

DEVICE u64 now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (u64)t.tv_sec * 1000000000 + t.tv_nsec;
}

DEVICE u64 cycles() { return now(); }

#endif
