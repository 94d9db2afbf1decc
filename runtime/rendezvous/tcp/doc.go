// Package tcp is the rendezvous of ranks in different processes, on one host or many. One process, usually rank 0's,
// runs a [Server] at the address that the unique id carries; every rank, rank 0 too, dials it with [Dial].
//
// The server is embedded: there is nothing to install. It holds a mem.Meeting for each unique id, any number at the
// same time, and forgets it after its last rank has left. Package door admits connections that prove to know an id's
// secret, and refuses all others before anything else that they send is used.
//
// # Protocol
//
// Each rank holds one connection from its first exchange until it closes. The connection's end tells the server that
// the rank is gone, so that all others know of a process's death within a round trip. After the door's handshake
// everything is frames:
//
//	length  uint32, big-endian: bytes that follow, at least 1
//	kind    uint8
//	body    length-1 bytes
//
// A client joins any number of exchanges, each under a stream number of its choice. Integers are unsigned varints
// (signed ones zigzag); bytes and text are a length and that many bytes; times are milliseconds before the moment of
// sending, so that clocks of different hosts need not agree.
//
//	client → server  join     request
//	client → server  leave    request: the rank's context ended
//	client → server  absent   request: the rank won't join; answered as a join
//	client → server  ask      request: which ranks have come?
//	client → server  bye      request: this rank is done with the unique id
//	server → client  result   stream, size, payload of rank 0, 1, …            ends the stream
//	server → client  failed   stream, roll                                     ends the stream
//	server → client  refused  stream, text: the id or the key is used up       ends the stream
//	server → client  roll     stream, roll: the answer to ask
//
// A request is: stream, rank (signed), size (signed), pid, host, the rank in the earlier communicator, the ranks that
// it leaves out, key, payload, how the rank leaves, and why. Fields that its kind doesn't need are empty.
//
// A roll is: size; the number of hosts and their names; the number of members, and for each rank, size, index of its
// host, pid, the rank in the earlier communicator, the ranks that it leaves out, time of arrival + 1 (0: never), how it
// left, and if it left the time + 1 and a text.
package tcp
