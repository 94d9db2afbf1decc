// Package rails runs jobs over several hosts, each with several ranks; the hosts are network namespaces of this
// machine. It compares messages through proxies (PXN) with one connection for each pair of ranks, and all-reduce with
// gloo's and Open MPI's. Plug-ins of the profiler check which rank's operations a proxy carries.
package rails
