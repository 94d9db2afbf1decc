// Package simulate runs simulated jobs of several sizes, one after the other, and puts what they showed into a table.
package simulate
