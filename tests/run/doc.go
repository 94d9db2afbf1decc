// Package run tests carillon run as a user sees it: processes and a launcher that are killed, signals, exit codes,
// closed pipes, the environment of ranks, containers with little room.
package run
