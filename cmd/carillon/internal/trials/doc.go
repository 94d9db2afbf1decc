// Package trials plays trials of the corpus (package ras/jobsim/corpus) with real processes. Each process is this
// program again. It makes the calls of its ranks' programs on real communicators.
package trials
