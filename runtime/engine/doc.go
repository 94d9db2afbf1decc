// Package engine holds what carries out the plans of package algo: host for memory of the CPU.
package engine
