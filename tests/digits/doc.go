// Package digits runs the training example as real processes: that it learns, that it learns the same with any number
// of ranks, what its tapes, traces and health pages show of it, and what the ranks say when one of them is killed.
package digits
