// Package tape is the flight recorder: one file per process, onto which its communicators write what they do, and which any number of
// readers follow, in the process or outside, while it runs or after it was killed. Spans, metrics, RAS's notes and the post-mortem are
// all computed from it, and nothing that the data path does waits for them.
//
//	Writer ─┬─ CommWriter ─┬─▶ slot of the in-flight table     what is: one consistent moment of each live communicator
//	        │              ├─▶ tallies                         how much was: operations that ended well, by kind
//	        │              ├─▶ life ring                       what was: acts, errors, descriptions; few
//	        │              ├─▶ op ring                         what was: operations that waited, failed, were slow or sampled
//	        └─ CommWriter ─┴─▶ ordinary ring                   what was: the ends of all others; many
//	                                 │
//	              Reader (a file as it lies)   Follower (live, wakes by futex or tick)
//
// Writing an operation's start and end costs some 40 ns, of which two readings of the clock are the half; it makes no system call, allocates
// nothing, and takes no lock. The table is the truth for diagnosis; the rings are history, and overwrite the oldest. A reader knows how many records
// it missed.
//
// A Follower reads the life ring and the op ring, and a Reader all three. What is the same a million times a second is not worth a
// reader's look at each: it takes the cache lines away under the writer, and the time of a processor that the job needs. So the writer counts
// what readers would count, in its tallies, and who follows is given what he can't count: what failed, waited, was slow, has a
// caller's span, is among the sampled (Config.SampleEvery; 1 is for those who want to see all), or found no room in a tally. What
// they make of it is the same as if they were fed all.
//
// # The file
//
// Dir/JOB/HOST-PID.tape, mode 0600, of a size that is fixed when it is created and reserved on the file system. All numbers are
// little-endian and naturally aligned. Every part is written in words of 8 bytes, so its size and offset are multiples of 8. The names
// of the offsets are in layout.go. Texts are padded with NULs.
//
//	part             at                  size
//	header           0                   4096
//	in-flight table  4096                512 a slot
//	tallies          behind the table    512 each
//	life ring        behind those        64 a record; the number is a power of two
//	op ring          behind that         64 a record; the number is a power of two
//	ordinary ring    behind that         512 a page; a page for each 32 op records, 32768 at most
//
// Header, written once:
//
//	0    magic "CARILLON"          64   op records u32             104  boot id, 40 bytes
//	8    format u32 = 2            68   pid u32                    144  host, 64
//	12   size of header u32        72   start of process u64       208  job, 64
//	16   size of file u64               (ticks, /proc/PID/stat)    272  program, 64
//	24   offset of slots u64       80   pid namespace u64          336  its version, 40
//	32   slots u32                      (inode)                    376  kernel's boot id, 16
//	36   size of slot u32          88   created, monotonic i64     392  offset of ordinary ring u64
//	40   offset of life ring u64   96   created, wall i64          400  offset of tallies u64
//	48   life records u32                                          408  tallies u32
//	52   size of record u32                                        412  size of tally u32
//	56   offset of op ring u64                                     416  check u64 of words 0 to 51
//
// Header, changing:
//
//	512  state u64: 1 live, 2 closed
//	576  bell u32: goes up when the writer wakes followers, who sleep on it with futex(2)
//	584  waiting u32: a follower sets it to 1 before it sleeps; the writer that wakes it sets it to 0,
//	     lets the bell go up once more, and wakes it then
//	640  op head u64: op records ever reserved
//	704  life head u64: life records ever reserved
//	768  overflow u64: communicators that found no free slot
//	832  latch of 2 words: (CLOCK_MONOTONIC, time of day), ns, of one moment
//	896  exported i64: until when the process has exported all its spans, those of what was going on then as unfinished; 0: it doesn't say
//	904  delivered i64: until when the spans of all that had ended were taken by who the process exports to; 0: it doesn't say
//	960  ordinary head u64: pages of the ordinary ring ever begun
//	1024 tallies u64: tallies ever begun
//
// # Latches
//
// What changes as a whole is a latch: a control word and two copies. The upper half of the control word is a version; its lowest
// bit names the copy that is current. The lower half is that copy's check. A writer fills in the other copy, then stores the control
// word with the next version (a release). So a reader gets a whole copy at any time, even if the writer was killed half-way, and one
// that is torn while it is copied shows by its check.
//
//	slot:  0    control word of info       64   two copies of operation, 8 words each
//	       8    control word of operation  192  two copies of info, 16 words each
//	       16   repeat, 5 words
//
//	info:      0 id, 16 bytes           operation:  0 launched u64
//	           16 parent, 16                        8 number u64
//	           32 number u32, 0: free               16 call, data type, reduction, algorithm, phase u8,
//	                                                   in flight u24
//	           36 state u8                          24 peer i32, wait i32
//	           40 rank i32, size i32                32 bytes u64
//	           48 nodes i32, root u32               40 start i64
//	           56 engine, 16                        48 last end i64
//	           72 name, 56                          56 waiting since i64
//
// The number counts the communicators of the process, from 1, and is never used again: it is the generation of its slot. The
// root is the number of the communicator that this one descends from by splits of the same rank; its own if from none.
//
// Most operations are like the one before, and begin and end when nothing else of the communicator is in flight. Those change the repeat alone,
// whose words are no latch. It is stored in the order 2, 1, 0 when one begins, and 4, 3 when it ends:
//
//	repeat:  0 launched u64   1 number u64   2 start i64   3 ended u64   4 last end i64
//
// If launched is more than the latch's, the operation in flight has the latch's signature, no phase, and waits for nobody. If ended is not less
// than what was launched then, none is in flight. These words only grow while a communicator has the slot, so a reader that finds a slot's
// first 64 bytes the same in two readings has one moment of it.
//
// A writer takes the slots that were never used in order, so that those behind them need not be looked at.
//
// # Tallies
//
// A tally counts the operations of communicators of one name and engine, with one call and class of sizes: class c has the sizes
// above 4^(c-1) bytes up to 4^c. It has one communicator that writes it, until that ends; then another of the same name may go on
// with it. Tallies are begun in order and never given up. What one counts is written before the header counts it, the check with the
// tally's index for its seed; all else is a word for itself.
//
//	0    name, 56               128  ordinary u64: never waited, not slow   160  14 words: up to 1 µs, 4 µs, … 17 s, and more
//	56   engine, 16             136  what those took u64, ns                272  what the others took u64, ns
//	72   call, size class u8    144  bytes of all u64                       320  12 words: up to 1 MB/s, 4 MB/s, … 1 TB/s, and more
//	80   check u64 of words     152  sum of bus bandwidths f64, MB/s
//	     0 to 9                                                           280  those of the first that are on the op ring u64
//
// # Records
//
// A writer reserves records by adding to the ring's head, fills in all but the first word and stores that one last (a release): the
// marker. Bits 32 to 63 of it are the low half of the record's index in the whole history of the ring, bits 24 to 31 its kind, bits 0
// to 23 its check. An index is at index modulo size. A record whose marker fits is whole; one with a lower index is not written yet; one with a
// higher index was overwritten.
//
//	op record (kinds 1, 7, 8)       life record (2), comm (3), end of comm (4)
//	0   marker                      0   marker
//	8   time i64                    8   time i64
//	16  seq u64                     16  op head before it was reserved u64
//	24  call, data type, reduction, 24  act, call, stage, phase, state u8,
//	    algorithm, phase, stage u8,     0 u8, code u16
//	    code u16                    32  peer i32, bytes in the tail u32
//	32  peer i32, wait i32          40  seq u64
//	40  bytes u64                   48  start i64
//	48  start i64                   56  number u32, slot i32
//	56  number u32, slot i32
//
// Kind 7 is the end of an operation that a tally counts, 8 that of an ordinary one that is sampled; the others have no record.
//
// Not every operation has a record of its start: the end's tells it too, and until then the slot. It is written before the first record of
// a phase or a wait, when the caller's span is known, and when no slot shows the operation. Its time is when the operation began, so that
// it can be before those of records in front of it.
//
// An operation that was called within a span has a record before its start, reserved together with it:
//
//	caller (6), on the op ring
//	0   marker        16  trace id, 16 bytes    40  flags u8    56  number u32, slot i32
//	8   time i64      32  span id, 8 bytes      48  seq u64
//
// The tail of a life record follows it in continuation records (kind 5): a marker and 56 bytes each. It is a sequence of fields: tag
// u8, length u16, bytes. Readers pass over tags and kinds that they don't know.
//
//	1 text    2 site    3 first site    4 caller: trace id 16, span id 8, flags 1    5 child's id 16    6 operations u32
//	7 id 16   8 parent 16   9 name   10 engine   11 rank, size, nodes i32   12 calls came from several goroutines or threads (empty)
//	site: line u32, goroutine u64, time i64 (ns since 1970), length of function u16, function, file
//
// # Pages
//
// The ends of ordinary operations are on pages, each of one communicator, that begin with a record (kind 9). A writer reserves a page by adding to
// the ring's head, makes its marker 0, clears it, writes the first operation, and the marker last. Behind it items follow, each with its
// first word stored last, up to a word that is 0 or the end of the page. By the ends of the operations they belong between the records of
// the other rings. A communicator that is three quarters of a lap behind the head begins another page. One that is stopped between looking
// at the head and storing, while the others write the last quarter, stores its item on a page that is another's. Bit 31 of the first word of
// an item is the lap of its page, the lowest bit of index divided by the number of pages: by it a reader sees that, and ends there.
//
//	page (kind 9)                           item of 6 words    item of 1 word
//	0   marker                              0   1<<63, lap     0   what it took u32, below 1<<31, lap; time since the start
//	8   number u32, slot i32                8   as 16 to 55        before it u32, 1 to 1<<31 - 1. All else is as
//	16  call, data type, reduction,             of a page          before it, but for the seq, which is the next
//	    algorithm u8, peer i32
//	24  seq u64
//	32  bytes u64
//	40  start i64
//	48  time i64
//	64  items
//
// # Checks
//
// The check of words w0, w1, … with a seed is h = seed ^ rotl(w0, 9) ^ rotl(w1, 18) ^ …, then h ^= h >> 32, then the upper half of h *
// 0x9E3779B97F4A7C15 modulo 2^64. The seed is the version for a latch, the low half of the index for a record (whose check is over words
// 1 to 7, and of which the upper 24 bits are kept), and the format for the header.
package tape
