// Package rails runs jobs over several hosts of several ranks, which are network namespaces of this machine. It
// compares what goes through proxies (PXN) with a connection for each pair of ranks, and all-reduce with gloo's and
// Open MPI's. Plug-ins of the profiler check whose it is that goes through a proxy.
package rails
