// Package digits runs the training example as real processes. It checks that the example learns, and learns the same
// with any number of ranks; what its tapes, traces and health pages show; and what the ranks report when one of them is
// killed.
package digits
