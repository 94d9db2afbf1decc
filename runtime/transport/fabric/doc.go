// Package fabric connects the ranks of a communicator, each pair by the fastest transport that both can use.
//
//	same process     inproc   unless Config.DisableP2P
//	same host        shm      unless Config.DisableSHM, or one can't open the other's memory (another user)
//	anything else    through package proxy, over TCP: "tcp", or "pxn" where another rank of the node sends
//
// A [Fabric] holds what all communicators of a process share: the in-process hub, one TCP listener, opened when a
// communicator first needs it, and one watch over the processes of this host that its ranks communicate with. Each rank
// of a new communicator prepares a [Port], passes the Port's card to all others, and connects with their cards; the
// result is its [Links].
//
//	port, err := f.Prepare(id, secret, size, false)
//	cards, err := allGather(port.Card())        // by rendezvous
//	links, err := port.Connect(ctx, rank, cards)
//	links.Conn(peer) … links.Waiter() …
//	links.Close()
//
// Both sides of a pair make the same choice: inproc and the network follow from the two cards alone, and shm is used if
// each side has opened the other's inbox, where they tell each other so.
package fabric
