// Package rails runs jobs over several hosts of several ranks, which are network namespaces of this machine, and
// compares what goes through proxies (PXN) with a connection for each pair of ranks.
package rails
