// Package dying kills a rank, or cancels its context, while a communicator is being made: at any moment of an init, a
// split, a shrink or a grow, between processes of one host and of several. All other ranks must learn of it.
package dying
