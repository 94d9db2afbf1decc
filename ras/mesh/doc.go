// Package mesh is the membership of a job: which of its processes run, which are dead, stopped, gone or out of reach,
// and a way to ask them questions while the job hangs. It knows nothing of communicators.
//
// Membership, failure detection and gossip are hashicorp/memberlist's (SWIM with Lifeguard), one member a process,
// encrypted with keys derived from the job's secret. To that the package adds what SWIM can't know:
//
//	witness      processes of one host form a ring by rank, and each watches the next two that are running: a pidfd
//	             reports a death within milliseconds, /proc tells a stopped process from a busy one. A witness
//	             informs its host directly, and the others by gossip.
//	left         a process that ends on purpose first informs its witnesses, and waits until they know.
//	unreachable  is the rest: the process doesn't answer, and no member of its host saw it die or stop.
//
//	          host a                        host b
//	  rank 0 ──watches──▶ 1 ──▶ 2      rank 4 ──▶ 5 ──▶ 6
//	     ▲                      │         ▲              │
//	     └────────── 3 ◀────────┘         └───── 7 ◀─────┘
//	             └──────── gossip, probes ───────┘
//
// # Asking
//
// Ask sends a question to any number of members and streams their answers. Many are asked through a tree: every member
// asks up to sixteen others, which ask the rest, each within less time than it was given. A member that doesn't answer
// is asked directly, and then a neighbour on its host is, which may answer for it from its tape (Config.LocalNote).
//
// # What it withstands
//
// Everything is encrypted and authenticated: memberlist sees only bytes from members. Data from strangers and replays
// are counted and dropped. The memory, connections and answers that a stranger or a member can cause are bounded. A
// process that has the job's secret is trusted not to lie.
//
// # What it costs
//
// Idle, a member sends and receives a few packets a second and reads four small files of /proc a second. It has no
// global state, except that memberlist draws from math/rand's and counts in go-metrics' (which discards it).
package mesh
