// What the host and the kernels share: parameters, and the layout of the memory that ranks share. Package cuda has the
// same in Go.
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
  carillon_max_blocks = 96,
  carillon_max_threads = 512, // of a block
  carillon_packet = 16,       // bytes of a packet
  carillon_payload = 8,       // bytes of data in it
  carillon_quad = 512,         // bytes of four lines
  carillon_quad_payload = 480, // bytes of data in them
  carillon_mailboxes = 2,      // for packets, for lines: a flag of one may be data of the other

  carillon_max_channels = 48,
  carillon_fifos = 3,      // FIFOs of a channel, from each other rank
  carillon_slots = 4,      // slots of a FIFO
  carillon_slice = 8192,   // bytes of a message that justify a channel
  carillon_messages = 64,  // messages of one exchange
  carillon_buffers = 2,    // buffers of a call: see below
  carillon_lanes = carillon_max_channels * carillon_fifos * (carillon_max_ranks - 1),
};

// The FIFOs of a channel.
enum {
  carillon_fifo_parts,    // data for the receiver to reduce
  carillon_fifo_shares,   // shares of a result
  carillon_fifo_messages,
};

// The buffers of a call.
enum { carillon_send, carillon_recv };

// A rank's window: two halves of each mailbox, then control words, then the slots of FIFOs. Offsets are from the
// control words; a lane is one FIFO from (or, for credits, to) one other rank.
enum {
  carillon_entered = 0, // by rank: number and signature of its last collective that isn't in LL, u32 each
  carillon_closings = carillon_entered + carillon_max_ranks * 8, // u32 by rank: nonzero once it has closed its end
  carillon_flags = carillon_closings + carillon_max_ranks * 4,   // u32 by lane and slot
  carillon_credits = carillon_flags + carillon_lanes * carillon_slots * 4, // u32 by lane
  carillon_leaves = carillon_credits + carillon_lanes * 4,                 // u32 by block and rank: see direct.h
  carillon_entries = (carillon_leaves + carillon_max_blocks * carillon_max_ranks * 4 + 127) / 128 * 128,
  // packets of two halves, by block, rank and buffer: see direct.h
  carillon_control =
      carillon_entries + 2 * carillon_max_blocks * carillon_max_ranks * carillon_buffers * carillon_packet,
};

// A rank's state, in separate memory that is initially zero.
enum {
  carillon_counters = 0,                                                    // carillon_counts, by block
  carillon_looked = carillon_counters + carillon_max_blocks * 16,           // u64: see for_ever
  carillon_positions = carillon_looked + 64,                                // u32 by lane: sent, received
  carillon_rounds = carillon_positions + carillon_lanes * 8,                // u32 by block: number of its meetings
  carillon_ended = (carillon_rounds + carillon_max_blocks * 4 + 127) / 128 * 128, // carillon_words by block: see end
  carillon_state = carillon_ended + carillon_max_blocks * 32,
};

// Numbers of package kernels, which are ncclRedOp_t's.
enum { carillon_sum, carillon_prod, carillon_max, carillon_min, carillon_avg, carillon_premul_sum };

// What a block waits for. Among the blocks of a launch, the highest phase is the most informative.
enum {
  carillon_done,     // nothing
  carillon_room,     // a rank to take the data sent to it
  carillon_results,  // a rank's share of the result
  carillon_data,     // a rank's data
  carillon_mismatch, // nothing: the rank makes another call, and the kernel has given up
  carillon_closed,   // nothing: the rank has closed its end, and the kernel has given up
  carillon_aborted,  // nothing: the communicator was aborted, and the kernel has given up
};

// carillon_word is one of the two that a block writes into host memory, 16 bytes at once.
struct carillon_word {
  u32 number;     // number of the launch
  u8 phase, peer; // peer: the rank that the block waits for
  u16 blocks;     // number of blocks of the grid
  u32 operation;  // the launch's parameter
  u32 replayed;   // see carillon_counts
};

// carillon_words are a block's words: the last launch that tells in which the block was done, and what it last waited
// for, if that took long. A carillon_word in front of the first block's words says why a kernel of the rank has given
// up.
struct carillon_words {
  carillon_word done, waits;
};

// carillon_counts are a rank's counts, the same for all blocks between launches. All but the first are the same on all
// ranks.
struct carillon_counts {
  u32 replays;     // launches by graphs
  u32 replayed;    // the collectives among them
  u32 collectives; // all collectives
  u32 epoch;       // collectives whose data comes with its flags
};

// carillon_args is the parameter of kernels whose data comes with its flags, and the beginning of the other kernels'
// parameters. The fields that the smallest operations need come first: the GPU reads them from memory that it has not
// read before.
struct carillon_args {
  u32 rank, ranks;
  u16 reduction;
  u16 tells;              // 1: the kernel tells the host when it is done; 0: it records that in the state
  u32 signature;          // 1 to 255: the collective's signature, the same on all ranks; 0 for messages
  u32 send_to, recv_from; // ranks, as bits, including this rank if it keeps something itself
  u32 number;             // number of the launch if operation is 0: the kernel itself counts launches by graphs
  u32 operation;          // for the words; not 0 in a graph
  u64 bytes;              // from one rank to another; for an all-reduce or a reduce, the whole buffer
  u64 state;              // this rank's state
  u64 half;               // bytes of half a mailbox, a multiple of 512
  u64 words;              // carillon_words of each block in host memory, behind a carillon_word; or 0
  u64 send, recv;         // this rank's buffers
  u64 send_stride, recv_stride; // bytes from the data for one rank to that for the next; for received data likewise

  // Every rank's window, at this rank's address for it: entry k is the window of rank + k (modulo ranks), so that ranks
  // don't all write to the same one first.
  u64 window[carillon_max_ranks];
  u64 abort;         // a u32 in host memory, nonzero when the communicator is aborted; or 0
  double factor;     // factor of premul_sum
  u32 slot;          // bytes of a FIFO's slot, a multiple of 16
  u32 channels;      // most channels that a message may use: the same on all ranks
};

// carillon_reach says where ranks access this rank's buffers: entry k is the address for rank + k (modulo ranks). All
// are 0 unless all ranks can access the buffer. needs is the same on all ranks.
struct carillon_reach {
  u64 at[carillon_buffers][carillon_max_ranks];
  u32 needs;  // the buffers, as bits, that ranks must access to do without FIFOs; 0: they can't
  u32 pushes; // nonzero: in an all-reduce, only results bypass the FIFOs
};

// carillon_reduce_args is the parameter of a reduction.
struct carillon_reduce_args {
  carillon_args common;
  carillon_reach reach;
};

// carillon_message is one buffer of an exchange.
struct carillon_message {
  u64 at;
  u64 bytes; // size, with the signature in the lowest 8 bits
};

// carillon_exchange_args is the parameter of an exchange, with ordered lists of messages. List k has the messages to
// rank + k (modulo ranks), and list carillon_max_ranks + k those from it. List l begins at first[l].
struct carillon_exchange_args {
  carillon_args common;
  carillon_reach reach;
  u32 first[2 * carillon_max_ranks + 1];
  u32 unused;
  carillon_message messages[carillon_messages];
};

static_assert(sizeof(carillon_word) == 16 && sizeof(carillon_words) == 32, "a word is written at once");
static_assert(sizeof(carillon_args) == 8 * 4 + (10 + carillon_max_ranks + 1) * 8, "as in Go");
static_assert(sizeof(carillon_reach) == 2 * carillon_max_ranks * 8 + 8, "as in Go");
static_assert(sizeof(carillon_exchange_args) == sizeof(carillon_reduce_args) + 18 * 4 + carillon_messages * 16,
              "as in Go");
