// Package etcd is the rendezvous of ranks that share an etcd: none of their hosts has to be reached for it, and no port
// of theirs is taken.
//
// A rank writes what it does at the rendezvous into etcd, and reads what all do, in etcd's order. Each runs the same
// mem.Meeting on that, so that all come to the same outcome. Below the prefix and the unique id's name are
//
//	gen            which generation of ranks meets: rank 0 begins one when it comes
//	rank/O         one for each rank, by a name O that it makes up
//	event/O/N      what it did: it joined an exchange, confirmed it, gave one up, or is done
//
// An exchange is complete when all have joined, and then all have confirmed that they saw so: the card alone may be of
// a rank that died before the others came.
//
// All that a rank writes hangs on a lease, which it gives back when it closes. Of one that dies, etcd removes it some
// seconds later, and by that the others learn of it. So nothing is left of a job, and ranks that are started again
// begin a generation of their own, which what is left of the last one does not disturb.
//
// Values are sealed with the unique id's secret (AES-GCM): etcd, and who else may read it, learns how many ranks there
// are, and nobody without the secret can make a rank believe anything.
package etcd
