/**
 * @file
 * What the files of the tape's writer share: the tape of this process, its communicators, and how words come onto it.
 *
 *   tape.c         the tape and its communicators: the in-flight table, the life ring, the clock, the bell
 *   tape_op.c      operations: slots, the op ring and the ordinary ring
 *   tape_mark.c    marks: how far streams are
 *   tape_tally.c   tallies
 *   tape_file.c    making the file
 *   tape_folder.c  where it may be
 *   tape_clock.c   its clock
 *   tape_hole.c    what happens when somebody truncates it
 *   tape_process.c what it says of the process
 */
#ifndef CARILLON_TAPE_WRITER_H
#define CARILLON_TAPE_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../lifecycle/carillon_lifecycle.h"
#include "tape.h"
#include "tape_file.h"

/** An operation that is in flight, or was a moment ago. */
struct pending {
  uint64_t number; /**< what the ranks call it */
  int64_t start;
  uint64_t kinds, bytes;
  int32_t peer;
  bool told; /**< the op ring has its start */
  bool ended;
};

/**
 * What a communicator remembers of its operations. What one writes that is like the one before, and the only one in
 * flight, is in front, on few lines of the cache.
 */
struct operations {
  uint64_t launched, completed; /**< all up to completed have ended */
  uint64_t page_number;         /**< of the last operation on the communicator's page */
  int64_t page_start;           /**< of that one */
  uint64_t captured_first;      /**< the first of the last operations that are captured */
  uint64_t captured;            /**< how many there are from that one on */
  uint32_t page_used;           /**< words */
  uint8_t n, head;              /**< the last n that were launched are known: a queue in list, from head on */
  bool plain;                   /**< the slot's latch shows list[0], alone in flight, waiting for nobody */
  uint8_t phase;                /**< of the oldest in flight */
  struct pending list[TAPE_MAX_PENDING];
  struct pending forgotten; /**< in place of one that is not known any more */
  struct pending kept;      /**< the oldest in flight, if list has it no more */
  uint64_t kept_launched;   /**< its number; 0: none was kept */
  int64_t wait_since;
  uint32_t version; /**< of the slot's latch */
  int32_t wait;     /**< the rank that the oldest in flight waits for; -1: none */
};

/** The tally of the operation that a communicator ended last: most are like the one before. */
struct counting {
  struct layout_tally *tally; /**< NULL: none */
  uint64_t kinds, bytes;
  double cross; /**< bytes that cross a rank's link, times 1000: divided by ns, that is MB/s */
  int32_t peer;
  bool paged; /**< the last record on the communicator's page is of one such as this */
};

/** What is remembered of a communicator's marks. */
struct marking {
  uint64_t launched, begun; /**< what the next one is behind; launched 0: nothing */
  uint64_t before;          /**< the last operation that is launched before what that one is behind */
  uint64_t last;            /**< what the last one is behind; 0: there was none */
  struct pending op;        /**< the last operation of that */
  uint32_t spare;           /**< marks that may follow at once */
  int64_t refilled;         /**< up to when spare is counted */

  int64_t observed;           /**< when the last operation began that was observed */
  uint64_t observed_launched; /**< which one it is */
  uint32_t observed_mark;     /**< the mark behind it; 0: there is none yet */
  struct pending observed_op;

  bool slow; /**< the op ring has the start of an operation that the stream has not done for long */
  uint32_t slow_mark;
  struct pending slow_op;
};

/** An index of a tally that a communicator writes, plus 1; 0: it has not asked for one yet. */
enum { TALLY_NONE = UINT16_MAX };

struct tape_comm {
  struct layout_slot *slot; /**< on the tape, or own */
  uint64_t comm;            /**< number and slot, as records have them */
  uint64_t seed;            /**< of sampling */
  uint64_t *page;           /**< NULL: none */
  uint64_t page_at;         /**< its index */
  struct counting counting;
  struct operations op;
  struct marking marking;

  uint32_t number; /**< from 1 */
  int32_t index;   /**< in the table; -1: none */
  uint32_t peers;  /**< ranks with which messages are counted */
  uint32_t peer;   /**< the index of the one that the last message was with */
  int32_t highest; /**< of those ranks */
  uint16_t tallies[TAPE_NUM_OPERATIONS][TAPE_SIZE_CLASSES];

  /* These, and slot, change with the turn and under the lock: they may be read with either. */
  struct tape_info info;
  uint32_t root;
  uint8_t state;
  bool closed;

  /** Under the lock: what was refused, by a hash of it, and how often. Further kinds share the last count. */
  struct {
    uint64_t is;
    uint32_t times;
  } refused[16];

  struct layout_slot own; /**< where there is none on the tape: memory that nobody reads, which saves asking */
};

/** A ring of records. */
struct ring {
  uint64_t *head;
  uint64_t *words;
  uint64_t mask;
};

/** Whether tape_open has been called, and came to something. */
enum progress { UNTRIED, MADE, FAILED };

/** What a process writes its tape with. */
struct tape_writer {
  enum progress progress; /**< atomic */
  bool off; /**< this is a forked child of the process whose tape it is, or the tape was truncated; never again on */
  struct tape_file file;

  struct layout_changing *changing;
  struct layout_slot *slots;
  struct layout_tally *tallies;
  struct ring life, op;
  uint64_t *reached; /**< a word for each slot, which devices write */
  uint64_t *marks;   /**< records for each slot */
  uint32_t *marked;  /**< the number of the last one, for each slot */
  int64_t mark_every; /**< ns */
  uint64_t *pages;
  uint64_t page_mask;
  uint8_t *pages_taken; /**< atomic: a communicator is on the page */
  uint64_t sample_every; /**< 0: none */

  pthread_mutex_t lock; /**< guards what follows, and of communicators what they say */
  uint32_t *free;       /**< slots of the table, the longest unused first: a queue of as many as there are slots */
  uint32_t free_head, free_n;
  bool *tallies_taken; /**< a communicator writes the tally */
  uint32_t number;     /**< of the last communicator */
  bool closed;

  pthread_mutex_t clock_lock; /**< orders the refreshing of the header's clock */
  int64_t clock_refreshed;    /**< atomic */
};

/** The tape of this process. */
extern struct tape_writer tape;

/** tape_on says whether this process writes for a communicator, or at all. */
static inline bool tape_on(const struct tape_comm *comm) { return comm != NULL && !tape.off; }

/** bits is how many bits a number has. */
static inline uint32_t bits(uint64_t n) { return n != 0 ? 64 - (uint32_t)__builtin_clzll(n) : 0; }

/* Words, markers and rings. */

static inline void store_release(uint64_t *to, uint64_t word) { __atomic_store_n(to, word, __ATOMIC_RELEASE); }

/** add adds to a word that this thread alone writes, and readers read at any time. */
static inline void add(uint64_t *to, uint64_t n) { __atomic_store_n(to, *to + n, __ATOMIC_RELAXED); }

static inline uint64_t pack32(int32_t low, int32_t high) { return (uint32_t)low | (uint64_t)(uint32_t)high << 32; }

static inline uint64_t marker(uint64_t number, uint8_t kind, uint64_t check) {
  return number << 32 | (uint64_t)kind << 24 | check >> 8;
}

/** store writes 7 words, and their marker behind them. It takes them in registers, which is quicker. */
static inline void store(uint64_t *to, uint64_t number, uint8_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                         uint64_t e, uint64_t f, uint64_t g) {
  to[1] = a;
  to[2] = b;
  to[3] = c;
  to[4] = d;
  to[5] = e;
  to[6] = f;
  to[7] = g;
  uint64_t h = tape_rotate((uint32_t)number) ^ a;
  h = tape_rotate(h) ^ b;
  h = tape_rotate(h) ^ c;
  h = tape_rotate(h) ^ d;
  h = tape_rotate(h) ^ e;
  h = tape_rotate(h) ^ f;
  h = tape_rotate(h) ^ g;
  store_release(&to[0], marker(number, kind, tape_mix(h)));
}

static inline uint64_t reserve(struct ring *ring, uint64_t n) {
  return __atomic_fetch_add(ring->head, n, __ATOMIC_SEQ_CST);
}

static inline uint64_t *at(struct ring *ring, uint64_t index) {
  return ring->words + (index & ring->mask) * TAPE_RECORD_WORDS;
}

/**
 * tape_protect has the process survive that somebody truncates the tape, or that its disk fails: an access to a page
 * that is gone is a SIGBUS, for which there is a handler from now on. It puts empty memory of the process's own in the
 * place of the tape, and switches that off; the access goes on there. Any other SIGBUS is for the handler that was
 * there before.
 */
bool tape_protect(void);

/** tape_wake lets the bell go up, and wakes the followers that sleep on it. */
void tape_wake(void);

/** tape_version is the version of a latch: of the later one of its copies, which have so many words each. */
static inline uint32_t tape_version(const uint64_t *latch, size_t words) {
  uint32_t first = (uint32_t)(latch[0] >> 32), second = (uint32_t)(latch[words + 1] >> 32);
  return (int32_t)(second - first) > 0 ? second : first;
}

/** tape_mark_configure takes over how often there are marks. */
void tape_mark_configure(const struct tape_config *config);

/** tape_put puts a moment of an operation onto the op ring; rank is the one that it waits for, or its carrier. */
void tape_put(struct tape_comm *comm, const struct pending *p, int64_t time, uint8_t stage, uint8_t phase,
              int32_t rank);

/** tape_mark_has tells whether a communicator has a slot with marks. */
bool tape_mark_has(const struct tape_comm *comm);

/** tape_again records that a device takes long for an operation whose launch has ended (start), or its end there. */
void tape_again(struct tape_comm *comm, const struct pending *p, uint8_t stage, uint16_t code);

/** tape_marked_at is the communicator's part of the marks, with the counts of its messages behind them. */
static inline uint64_t *tape_marked_at(const struct tape_comm *comm) {
  return tape.marks + (size_t)comm->index * (TAPE_MARKS_SIZE / sizeof(uint64_t));
}

/** tape_counts tells whether the communicator's slot has that part. */
static inline bool tape_counts(const struct tape_comm *comm) {
  return comm->index >= 0 && comm->index < (int32_t)tape_marked(&tape.file.geometry) && !comm->closed;
}

/** tape_peers is where its counts are, of two words each; before them is the pair that says that there are some. */
static inline uint64_t *tape_peers(const struct tape_comm *comm) {
  return tape_marked_at(comm) + (size_t)TAPE_MARKS_PER_SLOT * TAPE_RECORD_WORDS + 2;
}

/** tape_last is the operation that was launched last, while it is in flight. */
const struct pending *tape_last(struct tape_comm *comm);

/** tape_show shows the operations in the slot, with p as the one that runs: it publishes the slot's latch. */
void tape_show(struct tape_comm *comm, const struct pending *p);

/** tape_give_page leaves the page that the communicator writes, for others to overwrite. */
void tape_give_page(struct tape_comm *comm);

/** tape_count_as makes the communicator's tally the one for operations such as p, none if there is no room for it. */
void tape_count_as(struct tape_comm *comm, const struct pending *p);

/**
 * tape_give_tallies gives the communicator's tallies back, which go on counting for the next one with its name. The
 * caller holds the tape's lock.
 */
void tape_give_tallies(struct tape_comm *comm);

#endif /* CARILLON_TAPE_WRITER_H */
