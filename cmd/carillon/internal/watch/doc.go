// Package watch follows a running job: its events as they happen, and its ranks and communicators, until it has ended.
//
//	tapes of this host ───────── every second: which processes run, where, and what its communicators are in
//	/api/v1/events of one rank ─ at once: all ranks know the same verdicts; when this one ends, another is read
//	/api/v1/ras ──────────────── one rank every two seconds, or all in a minute, and a second after an event
//	        │
//	      watcher ── a screen, or a line for each event
//
// It sends requests rarely, and under a name of its own, so that servers never refuse it. A process that is out of
// reach doesn't delay it. If a process no longer answers, its last snapshot stays, with its age.
package watch
