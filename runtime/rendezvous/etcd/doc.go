// Package etcd is the rendezvous of ranks that share an etcd: it needs no connections between their hosts, and no ports
// on them.
//
// A rank writes its events at the rendezvous to etcd, and reads the events of all ranks, in etcd's order. Each rank
// applies the events to its own mem.Meeting, so that all ranks come to the same outcome. Below the prefix and the
// unique id's name are
//
//	gen            the current generation of ranks: rank 0 begins one when it comes
//	rank/O         one for each rank, by a random name O
//	event/O/N      its events: it joined an exchange, confirmed it, left it, won't join it, or has finished
//
// An exchange is complete when all ranks have joined, and all have then confirmed that they saw this: a rank that
// joined may have died before the others came.
//
// All keys of a rank have a lease, which the rank revokes when it closes. If the rank dies, etcd removes the keys some
// seconds later, and the other ranks see that. So a job leaves nothing behind, and restarted ranks begin a new
// generation, which leftovers of the last one don't disturb.
//
// Values are encrypted and authenticated with the unique id's secret (AES-GCM): a reader of the etcd only learns how
// many ranks there are, and a writer without the secret can't deceive a rank.
package etcd
