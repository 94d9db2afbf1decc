// Package run tests carillon run as a user meets it: processes and a launcher that are killed, signals, exit codes,
// closed pipes, what a rank's environment shows, containers without room.
package run
