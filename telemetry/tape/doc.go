// Package tape is the flight recorder: one file per process, onto which its communicators write what they do. Any
// number of readers follow it, in the process or outside, while the process runs or after it was killed. Spans,
// metrics, RAS's notes and the post-mortem are all computed from it, and the data path waits for none of them.
//
//	Writer ─┬─ CommWriter ─┬─▶ slot of the in-flight table   now: one consistent moment of each live communicator
//	        │              ├─▶ tallies                       counters: operations that ended well, by kind
//	        │              ├─▶ life ring                     history: acts, errors, descriptions; few
//	        │              ├─▶ op ring                       history: operations that waited, failed, …
//	        └─ CommWriter ─┴─▶ ordinary ring                 history: the ends of all others; many
//	                                 │
//	              Reader (a file as it lies)   Follower (live, woken by futex or tick)
//
// Writing an operation's start and end costs less than 100 ns; it makes no system call, allocates nothing, and takes
// no lock. The table is the truth for diagnosis; the rings are history, and overwrite the oldest. A reader knows how
// many records it missed.
//
// A Follower reads the life ring and the op ring, a Reader all three rings. Following each of a million like operations
// a second would cost processor time and the writer's cache lines. So the writer counts ordinary operations in its
// tallies, and the op ring has the others: those that failed, waited, were slow, have a caller's span, are sampled
// (Config.SampleEvery; 1 samples all), or found no page. From both, followers get the same results as from all.
//
// # The file
//
// Dir/JOB/HOST-PID.tape, mode 0600, of a size that is fixed when it is created and reserved on the file system. It
// has its name when the header is written. All numbers are little-endian and naturally aligned. Every part is written
// in words of 8 bytes. Texts are padded with NULs, with at least one at the end. The parts follow each other:
//
//	part             size
//	header           4096
//	in-flight table  512 for each slot
//	tallies          512 for each
//	life ring        64 for each record; the number is a power of two
//	op ring          64 for each record; the number is a power of two
//	ordinary ring    512 for each page; a page for each 32 op records
//	reached          8 for each slot that has marks; from a multiple of 4096 on
//	marks            3072 for each slot that has them, with the counts of its messages; from a multiple of 4096 on
//	device pages     4096 for each slot that has one; from a multiple of 4096 on
//
// There are at most 2^14 slots and 2^16 tallies, and at least one of each; 2^7 to 2^20 life records, and to 2^24 op
// records. What is not described is 0, and 0 means unknown. A rank is -1 if there is none or it is unknown. Calls,
// states and codes have the numbers of package lifecycle, data types and reductions those of package kernels; acts,
// stages and phases count from 0 in the order of this package's constants.
//
// Header, written once:
//
//	0   magic "CARILLON"            56   kernel's boot id, 16 bytes        112  boot id, 40 bytes
//	8   format u32 = 5              72   created, monotonic i64, ns        152  host, 64
//	12  slots u32                   80   created, ns since 1970 i64        216  job, 64
//	16  tallies u32                 88   rank in the job i32; -1: unknown  280  program, 64
//	20  life records u32            92   ranks of the job i32; 0: unknown  344  its version, 40
//	24  op records u32              96   an operation is slow after so     384  first slots, with marks u32
//	28  pid u32                          many ns i64; 0: unknown           388  of those, with device pages u32
//	32  size of file u64            104  and stalled i64; 0: unknown       392  check u64 of words 0 to 48,
//	40  start of process u64                                                    seed 5
//	    (ticks, /proc/PID/stat)
//	48  pid namespace u64 (inode)
//
// Header, changing; times are CLOCK_MONOTONIC in ns:
//
//	512  state u64: 1 live, 2 closed
//	576  bell u32: goes up when the writer wakes followers, which sleep on it with futex(2): behind each life record,
//	     whenever a quarter of the op ring was reserved, and when the state changes
//	584  waiting u32: a follower sets it to 1 before it sleeps; a writer that reads 1 after the bell went up sets it
//	     to 0, lets the bell go up once more, and wakes all that sleep on the bell
//	640  op head u64: op records ever reserved
//	704  life head u64: life records ever reserved
//	768  ordinary head u64: goes up when a writer looks for a page to begin
//	832  tallies u64: tallies ever begun
//	840  overflow u64: communicators that found no free slot
//	848  latch of 2 words: one moment, and the time of day then, ns since 1970
//	896  exported i64: the time until which the process has exported all its spans, those of what was going on then
//	     as unfinished; 0: it doesn't say; 2^63-1: it is dead, and a reader has sent all its spans
//	904  delivered i64: the time until which the spans of everything that had ended were exported; 0: it doesn't say
//	912  terminated i64: when the process was told from outside to end, by SIGTERM; 0: never
//	920  seen i64: when the process's own telemetry last read the table; 0: never
//	928  paused i64, resumed i64: when the process last stopped, and went on; 0: never
//	944  exporter u64: identifies where the process exports its spans, and under which resource; 0: nowhere
//	952  run u64: tells this start of the job from others; 0: not known yet
//	960  starved i64: for how long the process's threads, all together, waited for a processor while it paused, ns
//	968  10 times u64: what NCCL told its profiler plug-in and should not have, by kind; see Unexpected
//	1048 agent pid i64: the process's pid, as the agent that followed it last numbers it; 0: none followed it
//
// # Markers and latches
//
// A marker is the word before other words, and tells whether those are whole: it is stored last, with a release. Its
// upper half is a number, bits 24 to 31 are a kind, and bits 0 to 23 the upper bits of a check over the words behind
// it, with the number as seed.
//
// The check of words w0, w1, … with a seed is h = seed, then h = rotl(h, 9) ^ w for each word, then h ^= h >> 32,
// then the upper half of h * 0x9E3779B97F4A7C15 modulo 2^64.
//
// What changes as a whole is a latch: two copies of the same words, each behind its marker. The marker's number is
// the copy's version, its kind 0. The copy with the later version is the current one; version v is in copy v modulo
// 2. The first version is 1, and a latch that was never written is all 0. A writer, of which there is one at a time,
// fills in the other copy and stores its marker last. So a reader gets a whole copy at any time, even if the writer was
// killed half-way, and the check shows a copy that was torn while it was read.
//
//	slot:  0    latch of operation, 7 words    160  last end i64
//	       128  launched u64                   168  begun u64
//	       136  number u64                     176  done u64
//	       144  start i64                      192  latch of info, 16 words
//	       152  ended u64                     464  latch of place, 2 words
//	                                          184  captured u64
//
//	operation:  0   launched u64               info:  0   id, 16 bytes
//	            8   number u64                        16  parent, 16
//	            16  call, data type, reduction,       32  number u32, 0: free
//	                algorithm, phase u8,              36  state u8
//	                in flight u24                     40  rank i32, size i32
//	            24  peer i32, wait i32                48  nodes i32, root u32
//	            32  bytes u64                         56  engine, 16
//	            40  start i64                         72  name, 56
//	            48  waiting since i64            place: 0  node i32, local index i32
//	                                                    8  connections i32, locals u16, PXN u16
//
// The number in the info counts the communicators of the process, from 1, and is never used again: it is the
// generation of the slot. The root is the number of the communicator that this one descends from by splits of the same
// rank; its own if from none. Slots that were never used are taken in order, so that readers can stop at the first. A
// communicator that takes a slot sets the counters to 0, publishes an operation with launched 0, its place, and its
// info last; one that ends publishes an info with number 0. The versions go on. The place may never be published: it is
// unknown, as with PXN 0.
//
// The operation is the oldest in flight, or the last one. Its latch is published when an operation begins, when the
// phase or the rank that it waits for changes, and when one ends while others are in flight. A latch that shows an
// operation alone in flight, without a phase or a wait, serves later operations of the same signature, too, if each is
// alone in flight: they store the words number, start and launched, in this order, which replace the latch's if this
// launched is the greater. When no operation is in flight any more, ended is set to launched: then none is, whatever
// the latch says. Begun is the number of the last collective that began, and done that of the last that ended well. A
// collective is a call that all ranks make together, so also split, shrink and grow. One that NCCL refuses gives its
// number back: begun is lowered behind its end. An end is stored in the order done, last end, ended. The counters are
// 0 before a communicator's first operation. Two equal readings of a slot are one moment of it.
//
// # Marks
//
// If a call only launches an operation on a device's stream, the operation's records end with the call. Marks tell
// whether the stream has done the operation: behind some operations, the writer has the stream write a number into the
// slot's word of the part "reached", and notes in a record (kind 9, in the part "marks") behind which operation that
// is. The number in the record's marker is the one that the stream writes, into the lower half of the word; in each
// slot numbers count up by one, modulo 2^32, from one communicator to the next. Operations launched before a mark that
// was reached are done. The operation of a mark that was not reached is not done; of those launched before it, and of
// those behind the last mark, it is unknown.
//
// A stream may also write the mark's number before the operation, into the word's upper half, if marks cover all the
// communicator's operations before it. Such a mark has the phase "queued", others "stream". As long as that number was
// not written, and the marks before are reached, the stream is busy with other work that was launched on it.
//
// # Device pages
//
// A communicator's kernels may write onto the tape themselves. They are numbered from 1 in each life of a slot, and
// each begins when the one before it has ended. The marks of a slot with a device page have the number of the
// operation's last kernel, and the page tells how far the device has come, instead of the slot's word of "reached".
//
//	0     stop u32: if it is not 0, kernels leave
//	48    end, a word: the first kernel that gave up, with the phase that says why
//	64    96 blocks of 32 bytes: done, 16 bytes, and waits, 16
//
//	word: 0  number of the kernel u32         8   operation u32: by which the launcher knows what the kernel does
//	      4  the kernel's own phase u8        12  collectives that graphs have launched, with this one, u32
//	      5  the rank that it waits for u8
//	      6  blocks of the kernel u16
//
// A block writes a word at once. It writes done when it has done its part, and waits when it has waited for long, with
// phase 0 when it goes on. A kernel is done when all its blocks are, or when a block of a later kernel waits: none
// does behind one that gave up. Readers may see that some milliseconds late: of 32 kernels, at least one writes done
// onto the page. The others write it into the device's memory, from where the process copies it when the page has not
// changed for a while. Where the device can't write the file, which is on a disk, the process copies all words. A
// process that was stopped or has died doesn't.
//
// Kernels that graphs launch are numbered by themselves, and write a page that is not on the tape. What they do is
// shown as a communicator of its own, whose name ends in " (graphs)", and whose parent is the one that was captured:
// how many collectives are done, every few milliseconds, and as an operation what has waited since.
//
// The device's time for an operation is measured now and then. The op ring has it as a record of stage "device", whose
// time is the operation's start plus that duration: when the device began is unknown. A record of stage "kernel" says
// from when to when its kernel ran there or, in phase "agree", waited at its beginning for the other ranks' kernels.
//
//	mark (9)    0  marker              32  peer i32, begun u32
//	            8  start i64           40  bytes u64
//	            16 number u64          48  launched u64
//	            24 kinds, as in slots  56  number u32, slot i32
//
// In place of the number in flight, kinds has 24 bits that tell the stream from others; 0: they don't. All but the
// marker and the last word are as the slot has them at that moment; of begun, the low half. Marks with the number or
// slot of another communicator don't count. A slot has room for 32 marks: a new one replaces one that was reached, or
// else the newest. Where NCCL tells what its proxies do for the operation of a mark, the last of the 32 is a wait (10),
// as a mark, but for its time, since when the operation's data waits, its phase (credit, network, stream) and, in place
// of begun, the rank that it waits for; -1: for none. If the stream has not done an operation for as long as is slow,
// the writer puts the operation's start onto the op ring once more, for which rank it waits, if that is known, and its
// end when it is done or, with the code "aborted", when the communicator ends.
//
// An operation that is captured in a graph has no mark. If its call ends well, the op ring has its end with the phase
// "captured", and the slot counts it in captured. No tally does: it was not launched, and the graph's launches are
// unseen.
//
// Messages launched together, in a group, are done together, so that a mark doesn't tell which of them a rank waits
// for. Behind its marks, a slot has the counts of the messages that its rank has called for, with each of the first 63
// ranks, in the order of the first message, 16 bytes: rank i32, generation u32, sent u32, received u32. Before
// them is one of rank -1, if messages are counted: until one fails or is missed. Those of another generation, and all
// behind them, don't count.
//
// # Tallies
//
// A tally counts the operations of communicators of one name and engine, with one call and class of sizes: class c
// has the sizes above 4^(c-1) bytes up to 4^c. One communicator writes it, until that ends; then another of the same
// name may continue it. Tallies are begun in order and never freed. Name, engine, call, class and check, whose seed is
// the tally's index, are written before the header counts the tally; every other word is stored by itself.
//
//	0    name, 56               128  ordinary u64: never waited, not slow   160  14 words: up to 1 µs, 4 µs, …
//	56   engine, 16             136  what those took u64, ns                     17 s, more
//	72   call, size class u8    144  bytes of all u64                       272  what the others took u64, ns
//	80   check u64 of words     152  sum of bus bandwidths f64, MB/s        280  ordinary ones on the op ring u64
//	     0 to 9                                                             320  12 words: up to 1 MB/s, 4 MB/s, …
//	                                                                             1 TB/s, more
//
// # Records
//
// A writer reserves records by adding to the ring's head, fills in all but the first word and stores that one last:
// the marker. Its number is the low half of the record's index in the whole history of the ring. An index is at index
// modulo size. A record whose marker fits is whole; one with a lower index is not written yet; one with a higher
// index was overwritten.
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
// Kind 7 is the end of an operation that a tally counts, 8 the end of one that it counts as ordinary. Records of kind 8
// are on pages, unless they are sampled or there is no page; all others are on the op ring.
//
// Not every operation has a record of its start: the record of the end has it, too, and until then the slot. It is
// written before the first record of a phase or a wait, if the caller has a span, and if no slot shows the operation.
// Its time is when the operation began, so records before it may have later times.
//
// An operation that was called within a span has a record before its start, reserved together with it:
//
//	caller (6), on the op ring
//	0   marker        16  trace id, 16 bytes    40  flags u8    56  number u32, slot i32
//	8   time i64      32  span id, 8 bytes      48  seq u64
//
// # Pages
//
// The ends of ordinary operations are on the pages of the ordinary ring, each of one communicator. For a new page, its
// writer takes an index from the ordinary head. The page is at index modulo the number of pages, unless a communicator
// is on that one: then it takes the next index, or does without a page. It makes the page's first word 0, clears the
// rest, and then writes a record (kind 8) at the beginning, and more behind it, as long as they fit. The number in the
// markers of all of them is the page's index. In place of a record there may be a word, a repeat, that is stored at
// once; by bit 31, readers tell it from a marker:
//
//	0   what the operation took u32, ns, below 2^31, plus 2^31
//	4   from the start of the operation before it to its start u32, ns
//
// Everything else of the operation is as of the one before it, except for the seq, which is the next.
//
// A page's contents end at its end, or before a word that is 0. It belongs to its communicator until that begins
// another page or ends. A reader's copy is valid if the page's first word is still the same afterwards. Readers merge
// the operations with the records of the other rings by time, and learn from the tallies how many there were.
//
// # Tails
//
// The tail of a life record follows it in continuation records (kind 5), 48 at most: a marker and 56 bytes each. They
// are reserved together with it and written before it. The tail is a sequence of fields: tag u8, length u16, bytes.
// Readers skip tags and kinds that they don't know. A communicator has a record of kind 3 when it begins and whenever
// its description changes, and of kind 4 when it frees its slot, with fields 7 to 11, 13 and 14 each.
//
//	1 text    2 site    3 first site    4 caller: trace id 16, span id 8, flags 1    5 child's id 16
//	6 operations u32   7 id 16   8 parent 16   9 name   10 engine   11 rank, size, nodes i32
//	12 empty: calls came from several threads   13 root u32   14 place, as in slots
//	15 messages that were called for before the communicator ended, for each rank: rank i32, sent u32, received u32
//	16 how often such a call was refused u32, if more than once
//	site: line u32, goroutine u64, time i64 (ns since 1970), length of function u16, function, file
package tape
