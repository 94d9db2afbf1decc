// Package attach builds and tests libcarillon-nccl.so, the part of Carillon that is inside an unmodified process on
// NCCL. It is written in C, in this folder, and there is no Go in that process. What the process does is on its tape
// (package tape), which other processes read:
//
//	process on NCCL                               any other process
//	┌──────────────────────────────────────────┐  ┌───────────────────────────────┐
//	│ program ─▶ libcarillon-nccl.so ─▶ NCCL   │  │ tape.Follower, tape.Reader ─▶ │
//	│                 │                        │  │ spans, metrics, verdicts, …   │
//	└─────────────────┼────────────────────────┘  └──────▲────────────────────────┘
//	                  └──▶ DIR/JOB/HOST-PID.tape ────────┘
//
// make build builds it into bin/, with gcc or clang (make CC=clang). It needs libc alone, starts no thread, stays in
// the process when it is unloaded, and shows only the symbols of NCCL that it interposes and those of the profiler
// plug-in.
//
// # The writer of the tape
//
// tape.h is what the rest of the library calls; it says what is for which thread, and what belongs to whom. It mirrors
// tape.Writer and tape.CommWriter, with the numbers of tape_layout.h, which is generated from package tape (make
// generate). Both writers play the scripts of package tapetest, and readers can't tell their tapes apart.
//
// A start and an end of an operation cost less than 100 ns together (BenchmarkStartEnd). They allocate nothing, take no
// lock but for the first of a call and class of sizes of a communicator, and make no system call but, for each quarter
// of the op ring, one that wakes followers that sleep. In a forked child nothing is written. If no tape can be made,
// one line on stderr says why, and everything else is as without it.
//
// The tape is in CARILLON_TAPE_DIR, or else in /dev/shm/carillon-UID, in the folder of the job, CARILLON_JOB. A job
// without a name is named by what its launcher tells all ranks (torchrun's port and id, PMIx's namespace, Slurm's
// job and step), or "default" if that is nothing. Without a launcher, a job is what runs in one session of a host, such
// as that of a terminal, of a login or of a container: a job whose ranks are started in several needs a name.
//
// The tape takes an eighth of what is free there at most. Where there is no room or no right, it is smaller or in the
// next of tape.Dirs, as one that Go writes (tape.Make), and a line says so. Tapes of dead jobs are removed by carillon
// attach and the agent, not here. From CARILLON_SLOW_THRESHOLD and CARILLON_STALL_THRESHOLD its readers know when an
// operation is slow and when it is stalled.
//
// A tape that somebody truncates is given up, and the process goes on. The access that finds a page gone is a SIGBUS;
// its handler, which is there from when the tape is made, puts empty memory in the place of the tape and switches it
// off. An agent says so, and the post-mortem. Any other SIGBUS goes on to the handler that was there before, or does
// what it did without one. A truncated tape still ends the process, as any lost page does, if a thread blocks SIGBUS,
// or if a handler that was installed later doesn't pass on what it doesn't know. Python's faulthandler is mostly
// enabled before NCCL is used, and so comes second.
//
// # The profiler plug-in
//
// NCCL tells a plug-in, which NCCL_PROFILER_PLUGIN names, of what it does: a call, its enqueueing, and in more depth
// the network's steps and the kernels. The library is such a plug-in, ncclProfiler_v1 to ncclProfiler_v7.
// runtime/profiler/native has each version's structures; profiler_abi.h is generated, and does not compile if an
// offset differs.
//
// What NCCL keeps of the plug-in's are tokens, a number and a generation, and never pointers. So what comes from
// another process (PXN), twice, late or without a start is told by its bits, counted, and left alone; NCCL's log has
// the counts when the last communicator ends (NCCL_DEBUG=INFO). An event that nobody reads gets no token, and NCCL
// then calls no more for it.
//
// The mask asks NCCL for kinds of events. An event that is asked for costs NCCL time, whether or not somebody reads it.
// So it asks for none, beside what other plug-ins asked for, unless there are communicators that interposition doesn't
// see: then for operations and the calls that make them (0x706). If somebody else writes the mask (NCCL's own RAS can),
// only the bits by which our wishes differ from our last ones are changed.
//
// It is turned up for single operations and groups, while they are launched: NCCL reads it when it takes an operation
// up. These are a communicator's first, one every 30 seconds, and one at a time while the stream is slow; where the
// plug-in alone sees the communicator, the first and one every 30 seconds. Of these NCCL tells what its proxies and
// kernels do (profiler_depth.h). Of a group, that is told as its last operation's; where the plug-in alone sees it, as
// its first one's, and up to version 4 of that operation alone.
//
// On the tape is for which rank the operation's data waits, while it does: for data, for the receiver's credit, or for
// the network to take it. The latter names both ranks, if the operation hangs; who waits for data or credit may wait
// for a device. Afterwards there are spans in the operation's trace: "ccl.proxy.operation", with how much was sent to a
// rank, and for what when nothing happened for longest; "ccl.all_reduce (kernel)"; and from NCCL 2.31 on, for how long
// the kernel waited for those of other ranks. Their attribute ccl.op.depth says what they were seen by. An operation
// that already hangs can't be looked into any more.
//
// The operations of a communicator have one writer (ops.h). Those of communicators that an interposed function made
// are interposition's. The plug-in writes those of all others, which is all that there is with a statically linked
// NCCL. Up to version 4 (NCCL 2.27), it knows them by their enqueueing alone, at which all-gather and broadcast have
// become bytes, and up to version 3 not the number of ranks. No version but the first says the reduction; it is 0 on
// the tape.
//
// Other plug-ins run beside it: CARILLON_PROFILER_NEXT=mine,/x/b.so, four at most. Each name stands for what it would
// in NCCL_PROFILER_PLUGIN: a path, a file that the loader finds, mine for libnccl-profiler-mine.so, STATIC_PLUGIN for
// the program itself, none for none. carillon attach puts the one that NCCL would load before those that are there:
// that of NCCL_PROFILER_PLUGIN, or libnccl-profiler.so, which may be missing. Each is loaded at the newest version that
// it shares with NCCL, and is told of the events that it asked for and their parents, as NCCL would.
//
// # Interposition
//
// calls.c has every public function of NCCL (2.18 to 2.31, by nccl-api.tsv) that makes, uses or ends a communicator,
// and those of groups, under its name and that of its pnccl twin. Each asks the guards, calls NCCL, and notes what
// came of it. The library is preloaded, so that a program finds these first, and they find NCCL's own behind them
// (resolve.c): in the libnccl.so.2 that is loaded, wherever its symbols are visible, in what the program was linked
// with, or where the loader finds one. Nothing is looked for before the first call, and nothing else begins before the
// first communicator is made. Untouched are: communicators that were not seen being made; what NCCL calls of its own
// functions; all calls of a forked child, and all of an NCCL before 2.18.
//
// One thing can't be hidden: a program that asks whether a function is there (a weak symbol) finds this library's,
// whatever NCCL behind it has; calling one that is missing there answers ncclInvalidUsage, and a line on stderr says
// so.
//
// # Ways in
//
// The loader finds preloaded functions first wherever it searches the program's own scope: for what is linked with
// NCCL, and for what is loaded that is. They don't come first where a program looks a function up in the handle of
// NCCL's library itself (dlsym: JAX, vLLM, Python's ctypes), or where NCCL is in a scope that is searched before
// (RTLD_DEEPBIND). For these there is libcarillon-audit.so (audit/audit.c), which LD_AUDIT has the loader ask of each
// binding:
//
//	program ── a call through the PLT, or dlsym ──▶ loader ── la_symbind64 ──▶ libcarillon-audit.so
//	                                                  │    ncclX of libnccl.so.2? ncclX of libcarillon-nccl.so instead
//	                                                  ▼
//	                                     libcarillon-nccl.so ── dlsym, left as it is ──▶ NCCL
//
// It redirects to the preloaded library, which is therefore needed, too; what is bound to that already stays so. Of
// several NCCLs in a process, the first of the name libnccl.so.2 is redirected, which is the one that resolve.c finds;
// others are untouched. It needs no library at all: the loader would give it a C library of its own.
//
// A call costs nothing more: the loader asks once, when it binds (BenchmarkCall). What that costs a process at its
// start is lost in the noise (BenchmarkBegin). With an older interface than the second version, that of glibc 2.35, the
// loader would go through every call of the process, so the library asks not to be used.
//
// The loader asks of PLT entries and dlsym alone. A pointer to a function (R_X86_64_GLOB_DAT, also the calls of code
// that is built with -fno-plt) goes past, if RTLD_DEEPBIND keeps it from finding the preloaded function. A statically
// linked NCCL has no bindings at all. In both cases the profiler plug-in finds communicators that nobody saw being
// made, writes their operations, and says so on stderr. Setuid programs, and those that start with an empty
// environment, are as without Carillon.
//
// # Guards
//
// guard.h lists the mistakes that NCCL can't be trusted with, by the names that CARILLON_GUARD switches off. Such a
// call is answered as NCCL answers it on a good day, and NCCL is not called; ncclGetLastError then says on that thread
// what is wrong with it. What is legal in which state is the table of package lifecycle. On the tape the call is
// misuse, with where it was made and where the call that rules it out: to where the call returns, as the exported
// symbol and the offset in it, if there is one, and as the object and the offset in it. In a thread that runs Python it
// is the innermost line of the program's own: CPython's function for signal handlers writes the stack (python.h), which
// takes some 20 µs a frame with 3.11, so it is asked at acts and refused calls alone. CPython 3.13 and 3.14 export no
// such function, and the caller is C's there. Of a process that hangs the agent can read Python's stack (py-spy).
//
// A communicator is known by NCCL's address of it. When NCCL has made another one at the address of one that has ended,
// a stale handle is as good as a new one.
//
// A call on a communicator looks it up, checks its state and marks it as in use by the thread, without a lock, an
// allocation or a system call. BenchmarkCall says what that costs.
//
// # What is proof, and what inference
//
// The records of an operation of NCCL, and so its span and its duration, are those of its call: from its entry to its
// return, or in a group to that of the outermost ncclGroupEnd, which is when it is launched on its stream. So is an act
// in a group. Until ncclGroupEnd is called, both are in phase "group", of an operation in its slot alone. What answers
// ncclInProgress ends when ncclCommGetAsyncError says so, whoever calls it; nobody else asks, but for a guard that must
// know. Until somebody asks it is in phase "in_progress", and NCCL may have done it: an init or an operation waits for
// the ranks that have not come to it, but of a finalize, or where all have come, nothing is known. What NCCL refuses
// ends in phase "refused", and has no number that other ranks know.
//
// What the stream has done is on the tape by marks (package tape; stream.h): behind an operation, the stream is told to
// write a number into the tape's memory (cuStreamWriteValue32), for which the CUDA driver maps a page of it. So an
// agent sees it whatever the process does or doesn't do then, and no thread of the process asks or waits. A mark
// follows each operation, but for those that come faster: 64 at once, and one every two milliseconds. Where the
// operation before has a mark, too, the stream also writes when it comes to this one, before it is launched.
// BenchmarkCall has what the decision costs; each write costs the calling thread a microsecond or two.
//
//   - A mark that was reached proves that all that was launched on the communicator before it is done.
//   - A mark that was not reached proves that its operation is not done: its age counts from the call.
//   - If what is written before that operation was not reached either, all of the communicator's before is done, and
//     the stream has not come to this one: it is busy with what else was launched on it, or waits for another stream
//     (phase "queued"). The rank has not come to the operation, and others may wait for it: stream_blocked. What the
//     stream is busy with is not seen; it may be a replay of a CUDA graph that itself waits for a rank.
//   - If that was reached, the operation is the first thing that the stream has not done (phase "stream"). It may wait
//     for other ranks, for NCCL's proxies, or for room on the device. If nothing is written before it, it may also be
//     that the stream has not come to it.
//   - A mark has no time: it tells that something is done, and not since when. A follower of the tape sees that within
//     its interval, so that what it saw a stream come to is as old as that. After death it is as old as its call.
//   - What a follower finds at random moments tells for how long a device is in collectives, without their times: the
//     rank that is there for much less than all others comes last again and again (straggler). Only an operation that
//     the stream was seen to come to counts as one, and all else as what the rank may wait in. So of ranks whose
//     collectives come faster than marks, or in graphs, that isn't known, and after death of none.
//   - Messages of a group are done together, so that a mark doesn't tell which of them a rank waits for. The tape
//     counts those that each rank has called for, with 63 ranks at most, unless a call fails or is missed. A rank
//     whose group is not done waits for those that have called for fewer of their messages; which of several, is
//     inference where the rank's program has launched more since. If all have called for theirs, the order of the
//     launches may prove that ranks wait for each other; else it is not known what a rank waits for, unless NCCL was
//     asked.
//   - Of operations without a mark behind them nothing is known. But an all-reduce, all-gather, reduce-scatter or
//     all-to-all can't be done before all ranks have made it. If the tape of another rank says that it has made fewer
//     calls, this one waits for it; if it says that it has made another one of that number, none is taken to get past
//     it (mismatch), which is inference: NCCL may have done something else than both asked for. Otherwise nothing
//     is said, even if a device never completes what all ranks have called for.
//
// How long the device took for an operation is measured of the same operations that the mask is turned up for, by CUDA
// events before and behind it. Groups are not measured. The events are read when a later call on the communicator
// finds its mark reached, and never waited for. That is a span beside that of the call, "ccl.all_reduce (device)": of
// the time on the stream, so that the wait for other ranks is in it.
//
// An operation that is captured into a CUDA graph is not launched, and the graph's launches are not seen. The tape says
// so of it (package tape), and it has no mark. A stream is asked where a mark is due and, once it was found to be
// captured, at each operation: those that are captured within two milliseconds of a burst of others may be missed. The
// profiler plug-in is told of collectives that are captured from version 5 on.
//
// Marks need the stream, so that there are none of communicators of which the profiler plug-in writes the tape. The
// driver maps memory files alone, so that a tape on a disk has none, and a line says so. CARILLON_STREAM_MARKS=off
// switches them off. Without marks streams aren't asked either.
package attach

//go:generate go test -run ^TestNCCLHeaderIsCurrent$ . -rewrite
