// Package device makes jobs hang whose ranks use GPUs of a fake driver, in ways that look alike from outside, and
// checks the reports while they hang and after they were killed.
package device
