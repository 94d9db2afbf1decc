// What the host and the kernels have in common: the parameter of every kernel, and where things are in memory that
// ranks share. Package cuda has the same in Go.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

enum {
  carillon_max_ranks = 8,
  carillon_max_blocks = 64,
  carillon_max_threads = 512, // of a block
  carillon_packet = 16,   // bytes of a packet
  carillon_payload = 8,   // bytes of data in it
  carillon_barriers = 2,  // barriers of an operation at most
  carillon_flags = carillon_barriers * carillon_max_blocks * carillon_max_ranks * 4, // bytes before a half's packets
};

// Numbers of package kernels, which are ncclRedOp_t's.
enum { carillon_sum, carillon_prod, carillon_max, carillon_min, carillon_avg, carillon_premul_sum };

// What a block waits in.
enum {
  carillon_done,     // it waits no longer
  carillon_packets,  // for data of a rank
  carillon_results,  // for a rank's share of the result
  carillon_entry,    // for a rank to have entered
  carillon_exit,     // for a rank to have read and written what it had to
  carillon_mismatch, // it has given up: the rank makes another call
  carillon_aborted,  // it has given up: the communicator was aborted
};

// carillon_word is one of the two that a block writes into host memory, 16 bytes at once.
struct carillon_word {
  u32 epoch;
  u8 phase, peer; // peer: the rank that is waited for
  u16 blocks;     // of the grid
  u64 time;       // nanoseconds, by the GPU's clock
};

// carillon_words are a block's: when it was last done, and what it last waited for, if that took long.
struct carillon_words {
  carillon_word done, waits;
};

// carillon_args is the parameter. What the smallest operations need comes first: the GPU reads it from memory that it
// has not read before.
struct carillon_args {
  u32 rank, ranks;
  u32 reduction;
  u32 signature;          // 1 to 255: of the call, the same on all ranks
  u32 send_to, recv_from; // ranks, as bits; this rank is among them if it keeps something itself
  u64 bytes;              // from one rank to another; of an all-reduce in packets, all; of a direct one, a share
  u64 epochs;             // this rank's: a u32 for each of carillon_max_blocks blocks, all the same between operations
  u64 half;               // bytes of half a mailbox
  u64 words;              // carillon_words of each block in host memory, or 0
  u64 send, recv;         // this rank's buffers, for packets
  u64 send_stride, recv_stride; // bytes between what goes to one rank and what goes to the next; what comes likewise

  // Every rank's mailbox, as this rank reaches it: entry k is that of rank + k (modulo ranks), so that ranks don't all
  // write to the same one first. A mailbox is two halves; an operation uses the one of its epoch's last bit. A half is
  // the flags of the barriers (carillon_flags bytes), and packets.
  u64 mailbox[carillon_max_ranks];
  u64 abort;     // a u32 in host memory, not 0 when the communicator is aborted; or 0
  double factor; // of premul_sum

  u64 in[carillon_max_ranks], out[carillon_max_ranks]; // every rank's buffers, for direct
};

static_assert(sizeof(carillon_word) == 16 && sizeof(carillon_words) == 32, "a word is written at once");
static_assert(sizeof(carillon_args) == 6 * 4 + (10 + 3 * carillon_max_ranks) * 8, "as in Go");
