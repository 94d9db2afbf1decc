// Package tape is the flight recorder: one file per process, onto which its communicators write their acts and
// operations. Any number of readers follow it, in the process or outside, while the process runs or after it was
// killed. Spans, metrics, RAS's notes and the post-mortem are all computed from it, and the data path waits for none of
// them.
//
//	Writer ─┬─ CommWriter ─┬─▶ slot of the in-flight table   now: one consistent moment of each live communicator
//	        │              ├─▶ tallies                       counters: operations that ended well, by kind
//	        │              ├─▶ life ring                     history: acts, errors, descriptions; few
//	        │              ├─▶ op ring                       history: operations that waited, failed, …
//	        └─ CommWriter ─┴─▶ ordinary ring                 history: the ends of all others; many
//	                                 │
//	              Reader (a file as it lies)   Follower (live, woken by futex or tick)
//
// Writing an operation's start and end costs less than 100 ns; it makes no system call, allocates nothing, and takes no
// lock. Diagnosis relies on the table. The rings are history and overwrite their oldest records; a reader knows how
// many records it missed.
//
// A Follower reads the life ring and the op ring, a Reader all three rings. Following each of a million like operations
// a second would cost processor time and the writer's cache lines. So the writer counts ordinary operations in its
// tallies, and the op ring has only the others: operations that failed, waited, were slow, have a caller's span, are
// sampled (Config.SampleEvery; 1 samples all), or found no page. Tallies and op ring together give followers the same
// results as records of all operations would.
//
// format.md describes the files, for readers and writers in other languages.
package tape
