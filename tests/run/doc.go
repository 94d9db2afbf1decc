// Package run tests carillon run as a user meets it: processes that are killed, a launcher that is, signals, exit
// codes and closed pipes.
package run
