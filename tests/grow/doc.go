// Package grow has communicators of real processes grow: members of a job take in a process that was started later, by hand.
package grow
