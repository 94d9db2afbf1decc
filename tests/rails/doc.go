// Package rails runs jobs over several hosts of several ranks, which are network namespaces of this machine. It
// compares what goes through proxies (PXN) with a connection for each pair of ranks, and all-reduce with gloo's and
// Open MPI's.
package rails
