// Package health reports over HTTP whether a process is healthy, as Kubernetes' probes expect it, and the state of its
// job.
//
//	checks ─────► Registry ───┐
//	findings ───► Conditions ─┼─► Server ─► /livez  /readyz  /healthz  /readyz/NAME
//	                          │             with ?verbose  ?exclude=NAME  ?format=json
//	snapshots ──► Publisher ──┘             /api/v1/ras  ranks  comms  verdicts       documents, with an ETag
//	routes ───────────────────────────────► /metrics  /api/v1/events  …               handlers of other packages
//	                                        /                                         a page for people
//
// # Probes
//
// /livez says whether this process should be restarted, by the checks of the kind Live alone. Such a check must be
// about the process itself, and about a fault that its restart would fix. Another rank's fault, a network, a GPU, a
// stalled or failed communicator, a full disk or a slow exporter don't belong there, or a kubelet would kill healthy
// ranks one after another because of a faulty one. So no Condition can make a process not live.
//
// /readyz says whether the process can do its work now, by the checks of the kind Ready, and by critical conditions
// whose Declaration says so. /healthz has both.
//
// A condition is silent while a condition that it depends on is open: it is then a symptom, and is listed with its
// cause but not shown beside it. A silent condition still makes the process not ready.
//
// # The cost of requests
//
// Requests are cheap, however many there are. A check that is still running isn't started again. The documents under
// /api/v1 are those of the last published Snapshot, encoded at most once: no query reads a tape, asks another process
// or takes a communicator's lock. A client that keeps asking for a document more often than once per
// Config.MinPollInterval gets 429 with a Retry-After and a Link to the stream of events, in JSON if it accepts that.
// The first Config.PollBurst queries are free, so that people aren't refused. A 304 counts like any other answer. A
// client is identified by its address (for IPv6 its /64 network; behind a trusted proxy, the address that the proxy
// names), its token or certificate, and its User-Agent, so a polling dashboard doesn't use up the queries of a person
// with curl.
//
// Requests are bounded in size and time, and connections in number: if there are too many, those that have been idle
// longest are closed, so that a probe always gets in. If a handler panics, the answer is 500.
//
// # Where ranks are
//
// Once connected, a communicator in /api/v1/comms has the place of this process's rank: its node, its rail (the rank's
// index on its node), its network connections, and whether it sends to other nodes through other ranks of its own node
// (PXN, "on"), or why not: "one_node", "one_rank_a_node", "disabled", "no_shared_memory" or "different_owners". With
// PXN, data for a rank on rail j goes through the rank of the sender's node on rail j modulo node_ranks.
//
// # Access
//
// On loopback, the default, only the user of the process and root get answers, with curl, a browser, or their
// Prometheus: the kernel says whose connection it is. The request must name a loopback host, which web pages can't.
// Other users of the host get a bare yes or no from /livez and /readyz.
//
// On any other address, a Server starts only with Access, and then requires a token or a client certificate for
// everything except the bare answers of /livez and /readyz, as a kubelet has no credentials. The same holds on loopback
// if Access is set, for instance for another user's Prometheus. Without TLS, anyone who can listen on the network can
// read a token.
package health
