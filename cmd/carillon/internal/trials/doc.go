// Package trials plays trials of the corpus (package ras/jobsim/corpus) with real processes. Each process runs this
// same program, and makes the calls of its ranks' programs on real communicators.
package trials
