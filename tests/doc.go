// Package tests holds the tests that need more than one process: jobs of real ranks that are killed, stopped and
// signalled as operators and kernels do. It is a module of its own, so that dependencies of the tests never reach a
// user's go.sum. make e2e runs the tests, and README.md lists the packages.
package tests
