// Package grow tests how communicators of real processes grow: a job takes in a process that was started later.
package grow
