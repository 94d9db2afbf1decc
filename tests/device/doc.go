// Package device hangs jobs whose ranks are on GPUs of a fake driver, in the ways that look alike from outside, and
// reads what is said of them while they hang and after they were killed.
package device
