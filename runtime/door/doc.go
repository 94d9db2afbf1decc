// Package door is where the connections of other processes come in, those of rendezvous and those that carry data: one
// listener, one handshake, and bounds on what strangers can cause.
//
//	rank's connection ──▶┐                        ┌──▶ room of a unique id   (rendezvous/tcp)
//	rank's connection ──▶│ [Door]   strangers ────┤
//	port scan ──────────▶┘          prove yourself└──▶ room of a rank        (transport/tcp)
//
// Behind a door are rooms. Each has a name, which dialers say, and a secret, which both sides prove to know without
// showing it:
//
//	dialer ──▶ door   hello      "carillon", version, room [16], about [16], wire u8, nonce [32]
//	dialer ◀── door   challenge  0, version, wire u8, nonce [32]
//	dialer ──▶ door   proof      HMAC-SHA256(secret, "dialer", hello, challenge)
//	dialer ◀── door   welcome    0, version, HMAC-SHA256(secret, "door", hello, challenge)
//	           or     refusal    why, version: in place of challenge or welcome, and the connection ends
//
// About is for the room. Every message has a fixed size, so that no stranger decides how much is read, and a dialer
// that does not begin with the first word is not answered.
//
// # What is protected
//
// The handshake always authenticates both ends. What follows is protected as far as one of the two asks for:
//
//	plain         not at all: whoever can read packets between the hosts reads it, whoever can rewrite them changes it
//	authenticate  what is changed, repeated, dropped or swapped on the way ends the connection with ErrForged, and is
//	              never passed on; whoever can read packets reads it
//	encrypt       likewise, and nobody reads it; how much is sent, and when, is seen
//
// See Sealed for the records. Each direction has an AES-256-GCM key: HKDF-SHA256 of the secret and of what both have
// said, in which the nonces make it this connection's own. After a million records another key follows from it. There
// is no forward secrecy: somebody who has recorded a connection, and gets hold of the secret later, can read it.
// Somebody who can cut a connection ends it, as with plain. It looks like a peer that is gone, and never like one that
// closed in order, since the goodbye is sealed.
//
// It costs a core's AES. Between two ranks over loopback, on two cores (BenchmarkPingPong and BenchmarkStream of
// package fabric, the best of four runs):
//
//	              8 bytes, one way   64 KiB messages   1 MiB messages
//	plain         3.64 µs            4.7 GB/s          10.2 GB/s
//	authenticate  3.85 µs (1.06)     2.1 GB/s (0.46)   2.3 GB/s (0.22)
//	encrypt       3.88 µs (1.07)     1.5 GB/s (0.32)   1.6 GB/s (0.16)
//
// A connection over a network of 10 Gbit/s, 1.25 GB/s, is not slower for it, as far as a core is free on both sides.
//
// A stranger has five seconds for the handshake. There is room for a thousand of them; one more pushes out the one that
// has lingered longest, which an honest rank, done in milliseconds, hardly ever is.
package door
