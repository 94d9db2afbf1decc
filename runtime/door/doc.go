// Package door accepts the connections of other processes, for rendezvous and for data, with one listener, one
// authenticated handshake, and bounds on the cost of unauthenticated connections.
//
//	rank's connection ──▶┐                        ┌──▶ room of a unique id   (rendezvous/tcp)
//	rank's connection ──▶│ [Door]   strangers ────┤
//	port scan ──────────▶┘          prove yourself└──▶ room of a rank        (transport/tcp)
//
// Behind a door are rooms. Each has a name, which dialers send, and a secret. Both sides prove that they know the
// secret, without sending it:
//
//	dialer ──▶ door   hello      "carillon", version, room [16], about [16], wire u8, nonce [32]
//	dialer ◀── door   challenge  0, version, wire u8, nonce [32]
//	dialer ──▶ door   proof      HMAC-SHA256(secret, "dialer", hello, challenge)
//	dialer ◀── door   welcome    0, version, HMAC-SHA256(secret, "door", hello, challenge)
//	           or     refusal    why, version: in place of challenge or welcome, and the connection ends
//
// About is data for the room. Every message has a fixed size, so a stranger can't decide how much is read. A dialer
// that doesn't begin with "carillon" gets no answer.
//
// # What is protected
//
// The handshake always authenticates both ends. The data after it gets the stronger of the two protections requested:
//
//	plain         none: an attacker on the network can read and change it
//	authenticate  data that was changed, repeated, dropped or reordered on the way ends the connection with ErrForged
//	              and is never passed on; an attacker on the network can read it
//	encrypt       authenticated, and unreadable; its size and time can be seen
//
// See Sealed for the records. Each direction has an AES-256-GCM key: HKDF-SHA256 of the secret and the handshake, whose
// nonces make the key unique. After a million records, a key derived from it replaces it. There is no forward secrecy:
// an attacker who records a connection and obtains the secret later can read it. An attacker who cuts a connection ends
// it, as with plain. That looks like a lost peer and never like an orderly end, as the goodbye is sealed, too.
//
// The cost is AES on one core. Between two ranks over loopback, on two cores (BenchmarkPingPong and BenchmarkStream of
// package fabric, the best of four runs):
//
//	              8 bytes, one way   64 KiB messages   1 MiB messages
//	plain         3.64 µs            4.7 GB/s          10.2 GB/s
//	authenticate  3.85 µs (1.06)     2.1 GB/s (0.46)   2.3 GB/s (0.22)
//	encrypt       3.88 µs (1.07)     1.5 GB/s (0.32)   1.6 GB/s (0.16)
//
// On a network of 10 Gbit/s, 1.25 GB/s, a protected connection is no slower while a core is free on both sides.
//
// A stranger, a connection before its proof, has five seconds for the handshake. There are at most about a thousand
// strangers; a further one replaces the oldest. A rank's handshake takes milliseconds, so a rank is hardly ever the
// oldest.
package door
