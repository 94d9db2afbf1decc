/* Code generated from package tape by go generate; DO NOT EDIT. */

/**
 * @file
 * Where everything lies on a tape, for its writer in C: the numbers of Go's package telemetry/tape, whose format.md says
 * what they mean. All numbers are little-endian. Calls, states and codes are those of package lifecycle.
 */
#ifndef CARILLON_TAPE_LAYOUT_H
#define CARILLON_TAPE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a tape is little-endian");
_Static_assert(sizeof(void *) == 8, "a tape is written in words of 8 bytes");

#define TAPE_MAGIC "CARILLON"

/** Sizes, in bytes but for the last two. */
#define TAPE_HEADER_SIZE 4096
#define TAPE_SLOT_SIZE 512
#define TAPE_TALLY_SIZE 512
#define TAPE_RECORD_SIZE 64
#define TAPE_PAGE_SIZE 512
#define TAPE_RECORD_WORDS 8
#define TAPE_PAGE_WORDS 64

/** A slot's marks, its last one, the ranks with which messages are counted, and the bytes of both; slots
    that have them, and the multiple at which parts begin. */
#define TAPE_MARKS_PER_SLOT 32
#define TAPE_WAIT_AT 31
#define TAPE_MAX_PEERS 63
#define TAPE_MARKS_SIZE 3072
#define TAPE_MAX_MARKED 128
#define TAPE_REACHED_ALIGN 4096

/** Lengths of texts, a NUL at the end included. */
#define TAPE_ENGINE_SIZE 16
#define TAPE_NAME_SIZE 56
#define TAPE_BOOT_SIZE 40

/** What else the header says, and where what changes in it is. */
#define TAPE_FORMAT_VERSION 5
#define TAPE_CHANGING_AT 512
#define TAPE_STATE_LIVE 1
#define TAPE_STATE_CLOSED 2

/** How many of each part, by default, and how that is made less where there is no room. */
#define TAPE_DEFAULT_SLOTS 512
#define TAPE_DEFAULT_TALLIES 1024
#define TAPE_DEFAULT_LIFE_RECORDS 8192
#define TAPE_DEFAULT_OP_RECORDS 65536
#define TAPE_RECORDS_PER_PAGE 32
#define TAPE_MIN_RING 98
#define TAPE_MOST_HALVINGS 6
#define TAPE_MIN_SIZE 131072
#define TAPE_ROOM_SHARE 8
#define TAPE_SMALLER 4

/** What readers are given, and how often the clocks are compared; times in ns. */
#define TAPE_DEFAULT_SAMPLE_EVERY 1024
#define TAPE_DEFAULT_SLOW 1000000000
#define TAPE_REFRESH_EVERY 1000000000
#define TAPE_CLOCK_SET 1000000

/** Operations of a communicator that are in flight: known, and told of by a slot. */
#define TAPE_MAX_PENDING 64
#define TAPE_MAX_IN_FLIGHT 16777215

/** Kinds of a record. */
#define TAPE_KIND_OP 1
#define TAPE_KIND_LIFE 2
#define TAPE_KIND_COMM 3
#define TAPE_KIND_COMM_END 4
#define TAPE_KIND_CONTINUE 5
#define TAPE_KIND_TALLIED 7
#define TAPE_KIND_ORDINARY 8
#define TAPE_KIND_MARK 9
#define TAPE_KIND_WAIT 10

/** Words of a record. */
#define TAPE_REC_MARKER 0
#define TAPE_REC_TIME 1
#define TAPE_REC_SEQ 2
#define TAPE_REC_KINDS 3
#define TAPE_REC_RANKS 4
#define TAPE_REC_BYTES 5
#define TAPE_REC_START 6
#define TAPE_REC_COMM 7
#define TAPE_REC_LIFE_OP_HEAD 2
#define TAPE_REC_LIFE_KINDS 3
#define TAPE_REC_LIFE_PEER 4
#define TAPE_REC_LIFE_SEQ 5
#define TAPE_REC_MARK_RANKS 4
#define TAPE_REC_MARK_LAUNCHED 6

/** The lower half of a repeat on a page. */
#define TAPE_REPEAT_BIT 2147483648
#define TAPE_MAX_REPEAT 2147483647

/** Fields of a tail. */
#define TAPE_TAIL_TEXT 1
#define TAPE_TAIL_SITE 2
#define TAPE_TAIL_FIRST 3
#define TAPE_TAIL_CHILD 5
#define TAPE_TAIL_OPS 6
#define TAPE_TAIL_ID 7
#define TAPE_TAIL_PARENT 8
#define TAPE_TAIL_NAME 9
#define TAPE_TAIL_ENGINE 10
#define TAPE_TAIL_SHAPE 11
#define TAPE_TAIL_SHARED 12
#define TAPE_TAIL_ROOT 13
#define TAPE_TAIL_COUNTS 15
#define TAPE_TAIL_TIMES 16
#define TAPE_TAIL_PER_RECORD 56
#define TAPE_MAX_TAIL 2688
#define TAPE_MAX_TEXT 1024
#define TAPE_MAX_SITE 160
#define TAPE_SITE_FIXED 22

/** Calls that are operations have numbers from the first on. Collectives are the bits of a set. */
#define TAPE_FIRST_OPERATION 16
#define TAPE_NUM_OPERATIONS 12
#define TAPE_COLLECTIVES 150929632

/** Buckets of a tally. */
#define TAPE_DURATION_BUCKETS 14
#define TAPE_BANDWIDTH_BUCKETS 12
#define TAPE_SIZE_CLASSES 33

/** Acts: what in a communicator's life is worth a span. */
#define TAPE_ACT_NONE 0
#define TAPE_ACT_INIT 1
#define TAPE_ACT_SPLIT 2
#define TAPE_ACT_SHRINK 3
#define TAPE_ACT_GROW 4
#define TAPE_ACT_REVOKE 5
#define TAPE_ACT_FINALIZE 6
#define TAPE_ACT_DESTROY 7
#define TAPE_ACT_ABORT 8
#define TAPE_ACT_GROUP 9
#define TAPE_ACT_LEAK 10

/** Stages: which moment of an act or operation a record is about. */
#define TAPE_STAGE_NONE 0
#define TAPE_STAGE_START 1
#define TAPE_STAGE_PHASE 2
#define TAPE_STAGE_WAIT 3
#define TAPE_STAGE_END 4
#define TAPE_STAGE_MISUSE 5
#define TAPE_STAGE_DEVICE 6
#define TAPE_STAGE_PROXIED 7
#define TAPE_STAGE_STEP 8
#define TAPE_STAGE_KERNEL 9

/** Phases of an act or operation. */
#define TAPE_PHASE_NONE 0
#define TAPE_PHASE_RENDEZVOUS 1
#define TAPE_PHASE_TOPOLOGY 2
#define TAPE_PHASE_CONNECT 3
#define TAPE_PHASE_QUEUED 4
#define TAPE_PHASE_AGREE 5
#define TAPE_PHASE_TRANSFER 6
#define TAPE_PHASE_FINISH 7
#define TAPE_PHASE_STREAM 8
#define TAPE_PHASE_CREDIT 9
#define TAPE_PHASE_NETWORK 10
#define TAPE_PHASE_POOL 11
#define TAPE_PHASE_CAPTURED 12
#define TAPE_PHASE_GROUP 13
#define TAPE_PHASE_IN_PROGRESS 14
#define TAPE_PHASE_REFUSED 15

/** Kinds of unexpected calls to the profiler plug-in, and how many kinds there are. */
#define TAPE_UNEXPECTED_FOREIGN 0
#define TAPE_UNEXPECTED_NO_COMMUNICATOR 1
#define TAPE_UNEXPECTED_UNKNOWN_EVENT 2
#define TAPE_UNEXPECTED_STOPPED_TWICE 3
#define TAPE_UNEXPECTED_LATE 4
#define TAPE_UNEXPECTED_AFTER_STOP 5
#define TAPE_UNEXPECTED_NEVER_STOPPED 6
#define TAPE_UNEXPECTED_NO_ROOM 7
#define TAPE_UNEXPECTED_NOT_WRITTEN 8
#define TAPE_UNEXPECTED_OVERRULED 9
#define TAPE_UNEXPECTED_KINDS 10

/* The parts as they lie on the file. A latch is two copies, each behind its marker. */

struct layout_fixed {
  uint8_t magic[8];
  uint32_t version;
  uint32_t slots;
  uint32_t tallies;
  uint32_t life_records;
  uint32_t op_records;
  uint32_t pid;
  uint64_t file_size;
  uint64_t start_ticks;
  uint64_t pid_space;
  uint8_t kernel_boot[16];
  int64_t created_mono;
  int64_t created_wall;
  int32_t rank;
  int32_t job_size;
  int64_t slow_after;
  int64_t stall_after;
  uint8_t boot_id[40];
  uint8_t host[64];
  uint8_t job[64];
  uint8_t program[64];
  uint8_t prog_version[40];
  uint32_t marked;
  uint32_t devices;
};
_Static_assert(offsetof(struct layout_fixed, magic) == 0, "fixed.magic");
_Static_assert(offsetof(struct layout_fixed, version) == 8, "fixed.version");
_Static_assert(offsetof(struct layout_fixed, slots) == 12, "fixed.slots");
_Static_assert(offsetof(struct layout_fixed, tallies) == 16, "fixed.tallies");
_Static_assert(offsetof(struct layout_fixed, life_records) == 20, "fixed.life_records");
_Static_assert(offsetof(struct layout_fixed, op_records) == 24, "fixed.op_records");
_Static_assert(offsetof(struct layout_fixed, pid) == 28, "fixed.pid");
_Static_assert(offsetof(struct layout_fixed, file_size) == 32, "fixed.file_size");
_Static_assert(offsetof(struct layout_fixed, start_ticks) == 40, "fixed.start_ticks");
_Static_assert(offsetof(struct layout_fixed, pid_space) == 48, "fixed.pid_space");
_Static_assert(offsetof(struct layout_fixed, kernel_boot) == 56, "fixed.kernel_boot");
_Static_assert(offsetof(struct layout_fixed, created_mono) == 72, "fixed.created_mono");
_Static_assert(offsetof(struct layout_fixed, created_wall) == 80, "fixed.created_wall");
_Static_assert(offsetof(struct layout_fixed, rank) == 88, "fixed.rank");
_Static_assert(offsetof(struct layout_fixed, job_size) == 92, "fixed.job_size");
_Static_assert(offsetof(struct layout_fixed, slow_after) == 96, "fixed.slow_after");
_Static_assert(offsetof(struct layout_fixed, stall_after) == 104, "fixed.stall_after");
_Static_assert(offsetof(struct layout_fixed, boot_id) == 112, "fixed.boot_id");
_Static_assert(offsetof(struct layout_fixed, host) == 152, "fixed.host");
_Static_assert(offsetof(struct layout_fixed, job) == 216, "fixed.job");
_Static_assert(offsetof(struct layout_fixed, program) == 280, "fixed.program");
_Static_assert(offsetof(struct layout_fixed, prog_version) == 344, "fixed.prog_version");
_Static_assert(offsetof(struct layout_fixed, marked) == 384, "fixed.marked");
_Static_assert(offsetof(struct layout_fixed, devices) == 388, "fixed.devices");
_Static_assert(sizeof(struct layout_fixed) == 392, "fixed");

struct layout_clock_pair {
  int64_t mono;
  int64_t wall;
};
_Static_assert(offsetof(struct layout_clock_pair, mono) == 0, "clock_pair.mono");
_Static_assert(offsetof(struct layout_clock_pair, wall) == 8, "clock_pair.wall");
_Static_assert(sizeof(struct layout_clock_pair) == 16, "clock_pair");

struct layout_changing {
  uint64_t state;
  uint8_t reserved_b[56];
  uint32_t bell;
  uint32_t reserved_d;
  uint32_t waiting;
  uint32_t reserved_f;
  uint8_t reserved_g[48];
  uint64_t op_head;
  uint8_t reserved_i[56];
  uint64_t life_head;
  uint8_t reserved_k[56];
  uint64_t ordinary_head;
  uint8_t reserved_m[56];
  uint64_t tally_head;
  uint64_t overflow;
  struct { uint64_t marker; struct layout_clock_pair value; } clock[2];
  int64_t exported;
  int64_t delivered;
  int64_t terminated;
  int64_t seen;
  int64_t paused;
  int64_t resumed;
  uint64_t exporter;
  uint64_t run;
  int64_t starved;
  uint64_t unexpected[10];
  int64_t agent_pid;
};
_Static_assert(offsetof(struct layout_changing, state) == 0, "changing.state");
_Static_assert(offsetof(struct layout_changing, bell) == 64, "changing.bell");
_Static_assert(offsetof(struct layout_changing, waiting) == 72, "changing.waiting");
_Static_assert(offsetof(struct layout_changing, op_head) == 128, "changing.op_head");
_Static_assert(offsetof(struct layout_changing, life_head) == 192, "changing.life_head");
_Static_assert(offsetof(struct layout_changing, ordinary_head) == 256, "changing.ordinary_head");
_Static_assert(offsetof(struct layout_changing, tally_head) == 320, "changing.tally_head");
_Static_assert(offsetof(struct layout_changing, overflow) == 328, "changing.overflow");
_Static_assert(offsetof(struct layout_changing, clock) == 336, "changing.clock");
_Static_assert(offsetof(struct layout_changing, exported) == 384, "changing.exported");
_Static_assert(offsetof(struct layout_changing, delivered) == 392, "changing.delivered");
_Static_assert(offsetof(struct layout_changing, terminated) == 400, "changing.terminated");
_Static_assert(offsetof(struct layout_changing, seen) == 408, "changing.seen");
_Static_assert(offsetof(struct layout_changing, paused) == 416, "changing.paused");
_Static_assert(offsetof(struct layout_changing, resumed) == 424, "changing.resumed");
_Static_assert(offsetof(struct layout_changing, exporter) == 432, "changing.exporter");
_Static_assert(offsetof(struct layout_changing, run) == 440, "changing.run");
_Static_assert(offsetof(struct layout_changing, starved) == 448, "changing.starved");
_Static_assert(offsetof(struct layout_changing, unexpected) == 456, "changing.unexpected");
_Static_assert(offsetof(struct layout_changing, agent_pid) == 536, "changing.agent_pid");
_Static_assert(sizeof(struct layout_changing) == 544, "changing");

struct layout_header {
  struct layout_fixed fixed;
  uint64_t check;
  uint8_t reserved_c[112];
  struct layout_changing changing;
  uint8_t reserved_e[3040];
};
_Static_assert(offsetof(struct layout_header, fixed) == 0, "header.fixed");
_Static_assert(offsetof(struct layout_header, check) == 392, "header.check");
_Static_assert(offsetof(struct layout_header, changing) == 512, "header.changing");
_Static_assert(sizeof(struct layout_header) == 4096, "header");

struct layout_operation {
  uint64_t launched;
  uint64_t number;
  uint64_t kinds;
  uint64_t ranks;
  uint64_t bytes;
  uint64_t start;
  uint64_t wait_since;
};
_Static_assert(offsetof(struct layout_operation, launched) == 0, "operation.launched");
_Static_assert(offsetof(struct layout_operation, number) == 8, "operation.number");
_Static_assert(offsetof(struct layout_operation, kinds) == 16, "operation.kinds");
_Static_assert(offsetof(struct layout_operation, ranks) == 24, "operation.ranks");
_Static_assert(offsetof(struct layout_operation, bytes) == 32, "operation.bytes");
_Static_assert(offsetof(struct layout_operation, start) == 40, "operation.start");
_Static_assert(offsetof(struct layout_operation, wait_since) == 48, "operation.wait_since");
_Static_assert(sizeof(struct layout_operation) == 56, "operation");

struct layout_counters {
  uint64_t launched;
  uint64_t number;
  uint64_t start;
  uint64_t ended;
  uint64_t last_end;
  uint64_t begun;
  uint64_t done;
};
_Static_assert(offsetof(struct layout_counters, launched) == 0, "counters.launched");
_Static_assert(offsetof(struct layout_counters, number) == 8, "counters.number");
_Static_assert(offsetof(struct layout_counters, start) == 16, "counters.start");
_Static_assert(offsetof(struct layout_counters, ended) == 24, "counters.ended");
_Static_assert(offsetof(struct layout_counters, last_end) == 32, "counters.last_end");
_Static_assert(offsetof(struct layout_counters, begun) == 40, "counters.begun");
_Static_assert(offsetof(struct layout_counters, done) == 48, "counters.done");
_Static_assert(sizeof(struct layout_counters) == 56, "counters");

struct layout_comm_state {
  uint8_t id[16];
  uint8_t parent[16];
  uint32_t number;
  uint32_t state;
  int32_t rank;
  int32_t size;
  int32_t nodes;
  uint32_t root;
  uint8_t engine[16];
  uint8_t name[56];
};
_Static_assert(offsetof(struct layout_comm_state, id) == 0, "comm_state.id");
_Static_assert(offsetof(struct layout_comm_state, parent) == 16, "comm_state.parent");
_Static_assert(offsetof(struct layout_comm_state, number) == 32, "comm_state.number");
_Static_assert(offsetof(struct layout_comm_state, state) == 36, "comm_state.state");
_Static_assert(offsetof(struct layout_comm_state, rank) == 40, "comm_state.rank");
_Static_assert(offsetof(struct layout_comm_state, size) == 44, "comm_state.size");
_Static_assert(offsetof(struct layout_comm_state, nodes) == 48, "comm_state.nodes");
_Static_assert(offsetof(struct layout_comm_state, root) == 52, "comm_state.root");
_Static_assert(offsetof(struct layout_comm_state, engine) == 56, "comm_state.engine");
_Static_assert(offsetof(struct layout_comm_state, name) == 72, "comm_state.name");
_Static_assert(sizeof(struct layout_comm_state) == 128, "comm_state");

struct layout_shown_place {
  int32_t node;
  int32_t local;
  int32_t connections;
  uint16_t locals;
  uint16_t pxn;
};
_Static_assert(offsetof(struct layout_shown_place, node) == 0, "shown_place.node");
_Static_assert(offsetof(struct layout_shown_place, local) == 4, "shown_place.local");
_Static_assert(offsetof(struct layout_shown_place, connections) == 8, "shown_place.connections");
_Static_assert(offsetof(struct layout_shown_place, locals) == 12, "shown_place.locals");
_Static_assert(offsetof(struct layout_shown_place, pxn) == 14, "shown_place.pxn");
_Static_assert(sizeof(struct layout_shown_place) == 16, "shown_place");

struct layout_slot {
  struct { uint64_t marker; struct layout_operation value; } op[2];
  struct layout_counters counters;
  uint64_t captured;
  struct { uint64_t marker; struct layout_comm_state value; } info[2];
  struct { uint64_t marker; struct layout_shown_place value; } place[2];
};
_Static_assert(offsetof(struct layout_slot, op) == 0, "slot.op");
_Static_assert(offsetof(struct layout_slot, counters) == 128, "slot.counters");
_Static_assert(offsetof(struct layout_slot, captured) == 184, "slot.captured");
_Static_assert(offsetof(struct layout_slot, info) == 192, "slot.info");
_Static_assert(offsetof(struct layout_slot, place) == 464, "slot.place");
_Static_assert(sizeof(struct layout_slot) == 512, "slot");

struct layout_tallied {
  uint8_t name[56];
  uint8_t engine[16];
  uint8_t call;
  uint8_t size_class;
  uint8_t reserved_e[6];
};
_Static_assert(offsetof(struct layout_tallied, name) == 0, "tallied.name");
_Static_assert(offsetof(struct layout_tallied, engine) == 56, "tallied.engine");
_Static_assert(offsetof(struct layout_tallied, call) == 72, "tallied.call");
_Static_assert(offsetof(struct layout_tallied, size_class) == 73, "tallied.size_class");
_Static_assert(sizeof(struct layout_tallied) == 80, "tallied");

struct layout_tally {
  struct layout_tallied tallied;
  uint64_t check;
  uint8_t reserved_c[40];
  uint64_t ordinary;
  uint64_t ordinary_time;
  uint64_t bytes;
  double bandwidth;
  uint64_t durations[14];
  uint64_t other_time;
  uint64_t sampled;
  uint8_t reserved_k[32];
  uint64_t bandwidths[12];
  uint8_t reserved_m[96];
};
_Static_assert(offsetof(struct layout_tally, tallied) == 0, "tally.tallied");
_Static_assert(offsetof(struct layout_tally, check) == 80, "tally.check");
_Static_assert(offsetof(struct layout_tally, ordinary) == 128, "tally.ordinary");
_Static_assert(offsetof(struct layout_tally, ordinary_time) == 136, "tally.ordinary_time");
_Static_assert(offsetof(struct layout_tally, bytes) == 144, "tally.bytes");
_Static_assert(offsetof(struct layout_tally, bandwidth) == 152, "tally.bandwidth");
_Static_assert(offsetof(struct layout_tally, durations) == 160, "tally.durations");
_Static_assert(offsetof(struct layout_tally, other_time) == 272, "tally.other_time");
_Static_assert(offsetof(struct layout_tally, sampled) == 280, "tally.sampled");
_Static_assert(offsetof(struct layout_tally, bandwidths) == 320, "tally.bandwidths");
_Static_assert(sizeof(struct layout_tally) == 512, "tally");

#endif /* CARILLON_TAPE_LAYOUT_H */
