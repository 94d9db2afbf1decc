// Package attach builds and tests libcarillon-nccl.so, the part of Carillon that runs inside an unmodified process that
// uses NCCL. The library is written in C, in this folder, so no Go runtime enters that process. It records what the
// process does on a tape (package tape), which other processes read:
//
//	process on NCCL                               any other process
//	┌──────────────────────────────────────────┐  ┌───────────────────────────────┐
//	│ program ─▶ libcarillon-nccl.so ─▶ NCCL   │  │ tape.Follower, tape.Reader ─▶ │
//	│                 │                        │  │ spans, metrics, verdicts, …   │
//	└─────────────────┼────────────────────────┘  └──────▲────────────────────────┘
//	                  └──▶ DIR/JOB/HOST-PID.tape ────────┘
//
// "make build" builds the library into bin/, with gcc or clang (make CC=clang). It needs only libc, starts no thread,
// stays in the process when it is unloaded, and exports only the NCCL symbols that it interposes and those of the
// profiler plug-in.
//
// # The writer of the tape
//
// tape.h is the interface that the rest of the library calls; it says which thread may call each function, and who owns
// what. It mirrors tape.Writer and tape.CommWriter, with the numbers of tape_layout.h, which is generated from package
// tape (make generate). Both writers play the scripts of package tapetest, and readers can't tell their tapes apart.
//
// The start and the end of an operation together cost less than 100 ns (BenchmarkStartEnd). They allocate nothing. They
// take a lock only for the first operation of each call and size class on a communicator. The only system call wakes
// sleeping followers, once per quarter of the op ring. A forked child writes nothing. If no tape can be made, one line
// on stderr says why, and everything else works as it does without a tape.
//
// The tape is in CARILLON_TAPE_DIR, or else in /dev/shm/carillon-UID, in the folder of the job, CARILLON_JOB. A job
// without a name is named by what its launcher tells all ranks (torchrun's port and id, PMIx's namespace, Slurm's job
// and step), or "default" if the launcher tells nothing. Without a launcher, all that runs in one session of a host is
// one job, such as the session of a terminal, of a login or of a container: a job whose ranks are started in several
// sessions needs a name.
//
// The tape takes at most an eighth of the space that is free in its folder. Where space or permission is missing, the
// tape is smaller or goes to the next of tape.Dirs, as a tape that Go writes does (tape.Make), and a line on stderr
// says so. carillon attach and the agent remove the tapes of dead jobs; this library does not. The tape's readers learn
// from CARILLON_SLOW_THRESHOLD and CARILLON_STALL_THRESHOLD when an operation is slow and when it is stalled.
//
// If somebody truncates a tape, the library gives the tape up and the process goes on. The access that finds a page
// gone raises SIGBUS; the library's handler, which is installed when the tape is made, maps empty memory in place of
// the tape and switches it off. An agent and the post-mortem report this. Any other SIGBUS goes to the handler that was
// installed before, or has its default effect if there was none. A truncated tape still ends the process, as any lost
// page does, if a thread blocks SIGBUS, or if a handler that was installed later doesn't pass on faults that it doesn't
// know. Python's faulthandler is usually enabled before NCCL is used, so its handler is the earlier one.
//
// # The profiler plug-in
//
// NCCL reports what it does to a plug-in, which NCCL_PROFILER_PLUGIN names: a call, its enqueueing, and in more depth
// the steps of the network and the kernels. The library is such a plug-in, ncclProfiler_v1 to ncclProfiler_v7.
// runtime/profiler/native has the structures of each version; profiler_abi.h is generated, and does not compile if an
// offset differs.
//
// The handles that the plug-in gives to NCCL are tokens, a number and a generation, and never pointers. So an event
// that comes from another process (PXN), twice, late or without a start is recognized by its token, counted, and
// ignored; NCCL's log has the counts when the last communicator ends (NCCL_DEBUG=INFO). An event that nobody reads gets
// no token, and NCCL then makes no more calls for it.
//
// The mask tells NCCL which kinds of events the plug-in wants. An event in the mask costs NCCL time, whether or not
// somebody reads it. So the mask is empty, apart from what other plug-ins asked for, unless there are communicators
// that interposition doesn't see: then it asks for operations and the calls that make them (0x706). If somebody else
// writes the mask (NCCL's own RAS can), the plug-in changes only the bits in which its new wishes differ from its last
// ones.
//
// The mask is raised for single operations and groups, while they are launched: NCCL reads the mask when it takes an
// operation up. These are the first operation of a communicator, one every 30 seconds, and one at a time while the
// stream is slow; where only the plug-in sees the communicator, they are the first and one every 30 seconds. NCCL then
// reports what its proxies and kernels do for them (profiler_depth.h). For a group, this is recorded as part of its
// last operation; where only the plug-in sees the communicator, as part of its first one, and up to version 4 for that
// operation alone.
//
// While an operation's data waits, the tape says for which rank it waits: for data, for the receiver's credit, or for
// the network to take it. If the operation hangs, a wait for the network names both ranks; a rank that waits for data
// or credit may be waiting for a device. Afterwards the operation's trace has these spans: "ccl.proxy.operation", with
// how much was sent to a rank, and what the longest time without progress was spent waiting for; "ccl.all_reduce
// (kernel)"; and from NCCL 2.31 on, how long the kernel waited for the kernels of other ranks. Their attribute
// ccl.op.depth names their source. An operation that already hangs can't be looked into any more.
//
// Each communicator's operations have one writer (ops.h). Interposition writes those of the communicators that an
// interposed function made. The plug-in writes those of all others, which with a statically linked NCCL is all there
// are. Up to version 4 (NCCL 2.27), the plug-in learns of operations only when they are enqueued, when all-gather and
// broadcast have become bytes, and up to version 3 it does not learn the number of ranks. Only version 1 reports the
// reduction; with later versions it is 0 on the tape.
//
// Other plug-ins can run beside it: CARILLON_PROFILER_NEXT=mine,/x/b.so, at most four. Each name means what it would
// mean in NCCL_PROFILER_PLUGIN: a path, a file that the loader finds, mine for libnccl-profiler-mine.so, STATIC_PLUGIN
// for the program itself, none for none. carillon attach puts the plug-in that NCCL would load in front of this list:
// that of NCCL_PROFILER_PLUGIN, or libnccl-profiler.so, which may be missing. Each plug-in is loaded at the newest
// version that it shares with NCCL, and is told of the events that it asked for and their parents, as NCCL would do.
//
// # Interposition
//
// calls.c defines every public function of NCCL (2.18 to 2.31, by nccl-api.tsv) that makes, uses or ends a
// communicator, and the group functions, under its name and that of its pnccl twin. Each function asks the guards,
// calls NCCL, and records the result. The library is preloaded, so a program finds these functions first, and they find
// NCCL's own behind them (resolve.c): in the loaded libnccl.so.2, wherever its symbols are visible, in what the program
// was linked with, or where the loader finds one. The library looks for nothing before the first call, and starts
// nothing else before the first communicator is made. It leaves these alone: communicators that it did not see being
// made; NCCL's calls of its own functions; all calls of a forked child, and all calls of an NCCL before 2.18.
//
// One thing can't be hidden: a program that asks whether a function exists (a weak symbol) finds this library's
// function, whether or not the NCCL behind it has one. Calling a function that NCCL lacks returns ncclInvalidUsage, and
// a line on stderr says so.
//
// # Ways in
//
// The loader finds preloaded functions first wherever it searches the program's global scope: for whatever is linked
// with NCCL, including libraries that are loaded later. It doesn't find them first where a program looks a function up
// in the handle of NCCL's own library (dlsym: JAX, vLLM, Python's ctypes), or where NCCL is in a scope that is searched
// earlier (RTLD_DEEPBIND). libcarillon-audit.so (audit/audit.c) covers these cases: through LD_AUDIT the loader asks it
// about each binding:
//
//	program ── a call through the PLT, or dlsym ──▶ loader ── la_symbind64 ──▶ libcarillon-audit.so
//	                                                  │    ncclX of libnccl.so.2? ncclX of libcarillon-nccl.so instead
//	                                                  ▼
//	                                     libcarillon-nccl.so ── dlsym, left as it is ──▶ NCCL
//
// It redirects to the preloaded library, which is therefore needed as well; a symbol that is already bound to that
// library stays so. If a process has several NCCLs, it redirects the first one named libnccl.so.2, which is the one
// that resolve.c finds, and leaves the others alone. It needs no library at all: the loader would give it a C library
// of its own.
//
// It adds nothing to the cost of a call: the loader asks once, when it binds (BenchmarkCall). Its cost at the start of
// a process is lost in the noise (BenchmarkBegin). With an interface older than the second version, that of glibc 2.35,
// the loader would go through every call of the process, so there the library asks not to be used.
//
// The loader asks about PLT entries and dlsym only. A pointer to a function (R_X86_64_GLOB_DAT, also the calls of code
// that is built with -fno-plt) bypasses the library, if RTLD_DEEPBIND keeps it from finding the preloaded function. A
// statically linked NCCL has no bindings at all. In both cases the profiler plug-in finds the communicators whose
// making the library did not see, writes their operations, and says so on stderr. Setuid programs, and programs that
// start with an empty environment, run as without Carillon.
//
// # Guards
//
// guard.h lists the mistakes that NCCL doesn't handle reliably, under the names by which CARILLON_GUARD switches each
// guard off. Such a call returns the error that NCCL returns when it does notice, and NCCL is not called;
// ncclGetLastError on that thread then says what is wrong with the call. The table of package lifecycle says what is
// legal in which state. On the tape the call is a misuse, with its own call site and that of the call that rules it
// out: the return address, as the exported symbol and the offset in it, if there is one, and as the object and the
// offset in it. In a thread that runs Python the site is the innermost line of the program's own: CPython's function
// for signal handlers writes the stack (python.h), which takes some 20 µs a frame with 3.11, so it is called only for
// acts and refused calls. CPython 3.13 and 3.14 export no such function, and the site there is that of the C caller.
// The agent can read the Python stack of a process that hangs (py-spy).
//
// A communicator is identified by NCCL's address of it. Once NCCL has made a new communicator at the address of one
// that has ended, a stale handle can't be told from the new one.
//
// A call on a communicator looks it up, checks its state and marks it as in use by the thread, without a lock, an
// allocation or a system call. BenchmarkCall says what that costs.
//
// # What is proof, and what inference
//
// The records of an NCCL operation, and so its span and its duration, are those of its call: from entry to return, or
// in a group to the return of the outermost ncclGroupEnd, which is when it is launched on its stream. The same holds
// for an act in a group. Until ncclGroupEnd is called, both are in phase "group"; for an operation only its slot says
// so. A call that returned ncclInProgress ends when ncclCommGetAsyncError says so, whoever calls it; the library itself
// asks only when a guard must know. Until somebody asks, the call is in phase "in_progress", and NCCL may already have
// done it: an init or an operation waits for the ranks that have not reached it, but nothing is known about a finalize,
// or once all ranks have come. A call that NCCL refuses ends in phase "refused", and has no number that other ranks
// know.
//
// Marks on the tape show what the stream has done (package tape; stream.h): behind an operation, the stream is told to
// write a number into the tape's memory (cuStreamWriteValue32), for which the CUDA driver maps a page of the tape. So
// an agent sees the number whatever the process is doing, and no thread of the process polls or waits. A mark follows
// each operation, unless operations come too fast: the limit is 64 marks in a burst, and then one every two
// milliseconds. Where the previous operation has a mark, too, the stream also writes when it reaches this one, before
// it is launched. BenchmarkCall has the cost of the decision; each write costs the calling thread a microsecond or two.
//
//   - A mark that was reached proves that everything launched on the communicator before it is done.
//   - A mark that was not reached proves that its operation is not done: its age counts from the call.
//   - If the write before that operation was not reached either, all earlier work of the communicator is done, and the
//     stream has not reached this operation: it is busy with other work that was launched on it, or waits for another
//     stream (phase "queued"). The rank has not reached the operation, and others may wait for it: stream_blocked. What
//     the stream is busy with is not seen; it may be a replay of a CUDA graph that itself waits for a rank.
//   - If that write was reached, the operation is the first thing that the stream has not done (phase "stream"). It may
//     wait for other ranks, for NCCL's proxies, or for room on the device. If there is no write before it, the stream
//     may also not have reached it.
//   - A mark has no time: it says that something is done, but not since when. A follower of the tape sees that within
//     its polling interval, so its times for what a stream reached are as exact as that interval. After death only the
//     time of the call is known.
//   - What a follower sees at random moments says what share of the time a device spends in collectives, without the
//     times of single ones: the rank that spends much less time there than all others comes last again and again
//     (straggler). Only an operation that the stream was seen to reach counts as a collective; everything else counts
//     as what the rank may wait in. So this isn't known for ranks whose collectives come faster than marks, or in
//     graphs, and after death it is known for none.
//   - The messages of a group complete together, so a mark doesn't tell which of them a rank waits for. The tape counts
//     the messages that each rank has called for, with at most 63 ranks, unless a call fails or is missed. A rank whose
//     group is not done waits for the ranks that have called for fewer of the messages between them; if there are
//     several, which one is inference where the rank's program has launched more since. If all have called for theirs,
//     the order of the launches may prove that ranks wait for each other; else it is not known what a rank waits for,
//     unless NCCL was asked.
//   - Nothing is known about operations that no mark follows. But an all-reduce, all-gather, reduce-scatter or
//     all-to-all can't be done before all ranks have called it. If the tape of another rank says that it has made fewer
//     calls, this rank waits for it; if it says that it has made a different call of that number, no rank is taken to
//     get past it (mismatch), which is inference: NCCL may have done something that neither asked for. Otherwise
//     nothing is reported, even if a device never completes what all ranks have called for.
//
// The device's time for an operation is measured for the same operations that the mask is raised for, by CUDA events
// before and behind it. Groups are not measured. The events are read when a later call on the communicator finds the
// operation's mark reached; nobody waits for them. The result is a span beside that of the call, "ccl.all_reduce
// (device)": it covers the time on the stream, and so includes the wait for other ranks.
//
// An operation that is captured into a CUDA graph is not launched, and launches of the graph are not seen. The tape
// marks such an operation as captured (package tape), and it has no stream mark. The stream is asked whether it is
// being captured where a mark is due and, once it was found to be captured, at each operation: operations that are
// captured within two milliseconds of a burst of others may be missed. From version 5 on, the profiler plug-in is told
// of collectives that are captured.
//
// Marks need the stream, so communicators whose tape the profiler plug-in writes have none. The driver maps only memory
// files, so a tape on a disk has no marks, and a line on stderr says so. CARILLON_STREAM_MARKS=off switches marks off.
// Without marks, streams aren't asked about capture either.
package attach

//go:generate go test -run ^TestNCCLHeaderIsCurrent$ . -rewrite
