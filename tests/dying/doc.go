// Package dying kills a rank, or ends its context, while a communicator is being made: at any moment of an init, a
// split, a shrink and a grow, between processes of one host and of several. All others must learn of it.
package dying
