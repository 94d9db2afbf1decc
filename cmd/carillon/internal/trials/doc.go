// Package trials plays trials of the corpus (package ras/jobsim/corpus) with real processes. Each runs this program
// again, and makes the calls of its ranks' programs on real communicators.
package trials
