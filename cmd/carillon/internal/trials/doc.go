// Package trials plays trials of the corpus (package ras/jobsim/corpus) with real processes: each is this program
// again, which makes the calls of its ranks' programs on real communicators.
package trials
