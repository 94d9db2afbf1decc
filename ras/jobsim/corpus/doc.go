// Package corpus is jobs like those of training, drawn from a seed, with things done wrong in them, so that it is known
// by construction what may be said of each. They are played in virtual time; what the agents said while a job ran, and
// what its tapes say after its end, is scored.
//
//	Draw ─▶ Trial ─▶ Play ─▶ Result ─▶ Scores ─▶ Table: right rank and reason, innocents named, time
//
// A Live is the agents of a simulated job and the tapes that its processes leave behind; scenarios use it, too.
package corpus
