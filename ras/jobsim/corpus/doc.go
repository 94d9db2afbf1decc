// Package corpus draws training jobs with faults from a seed, so that the right diagnosis of each is known by
// construction. It plays them in virtual time, and scores the verdicts of the agents while a job ran and of the
// post-mortem after its end.
//
//	Draw ─▶ Trial ─▶ Play ─▶ Result ─▶ Scores ─▶ Table: right rank and reason, innocents named, time
//
// A Live holds the agents of a simulated job and the tapes of its processes; scenarios use it, too.
package corpus
