// Package algotest checks plans. [Run] interprets the plans of all ranks of an operation against each other, on
// elements that remember how they were made, under the harshest rules that an engine can meet: nothing is buffered
// between ranks, and steps progress in random pieces in a random order. [Races] proves, for any order, that a rank's
// steps don't write what another of its steps has yet to read.
package algotest
