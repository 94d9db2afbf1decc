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
//	dialer ──▶ door   hello      "carillon", version, room [16], about [16], nonce [32]
//	dialer ◀── door   challenge  0, version, nonce [32]
//	dialer ──▶ door   proof      HMAC-SHA256(secret, "dialer", hello, nonce)
//	dialer ◀── door   welcome    0, version, HMAC-SHA256(secret, "door", hello, nonce)
//	           or     refusal    why, version: in place of challenge or welcome, and the connection ends
//
// About is for the room. Every message has a fixed size, so that no stranger decides how much is read, and a dialer
// that does not begin with the first word is not answered. The handshake authenticates the two ends of a connection; it
// does not encrypt, and does not protect against somebody who can rewrite packets between the hosts: a job's network is
// trusted that far.
//
// A stranger has five seconds for the handshake. There is room for a thousand of them; one more pushes out the one that
// has lingered longest, which an honest rank, done in milliseconds, hardly ever is.
package door
