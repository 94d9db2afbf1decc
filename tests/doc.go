// Package tests holds what needs more than one process: jobs of real ranks, killed, stopped and signalled as operators
// and kernels do. It is a module of its own, so that what only tests need never reaches a user's go.sum. make e2e runs
// it, and README.md lists its packages.
package tests
