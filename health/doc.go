// Package health answers over HTTP how a process is, in the manner of Kubernetes, and what it knows of its job.
//
//	checks ─────► Registry ───┐
//	findings ───► Conditions ─┼─► Server ─► /livez  /readyz  /healthz  /readyz/NAME
//	                          │             with ?verbose  ?exclude=NAME  ?format=json
//	snapshots ──► Publisher ──┘             /api/v1/ras  ranks  comms  verdicts       documents, with an ETag
//	routes ───────────────────────────────► /metrics  /api/v1/events  …               what others serve
//	                                        /                                         a page for people
//
// # What decides about what
//
// /livez says whether this process should be restarted. Only checks of the kind Live decide, and such a check must be
// about the process itself, and about what a restart of it alone would mend. What another rank did, a network, a GPU, a
// stalled or failed communicator, a full disk, an exporter that lags: none of them belongs there, or a kubelet kills
// healthy ranks, one after another, because one of them is ill. Therefore no Condition can make a process not live.
//
// /readyz says whether it can do its work now. Checks of the kind Ready decide, and critical conditions
// whose Declaration says so. /healthz asks for both.
//
// A condition is silent while one that it depends on is open: it is a symptom then, and is listed with its cause, but
// not shown beside it. Silent or not, it makes the process as unready as it does.
//
// # What asking costs
//
// Little, however often and however rudely it is done. A check that is still running is not started again. The
// documents under /api/v1 are those of the last published Snapshot, encoded at most once: no query reads a tape, asks
// another process or takes a lock that a communicator takes. A client that goes on asking for the same document more
// often than once in Config.MinPollInterval is refused with 429, a Retry-After and a Link to the stream of events, in
// JSON if it accepts that; it has Config.PollBurst queries without waiting, so that people aren't refused. An answer
// that nothing has changed, 304, is an answer, so that asking with If-None-Match isn't a way around. A client is an
// address (of IPv6 its network of 64 bits), behind a trusted proxy the address that the proxy names, together with its
// token or certificate and the program that it says it is (its User-Agent): a dashboard that polls takes nothing from a
// person with curl.
//
// Requests are bounded in size and time, and connections in number: where there are too many, the ones that have asked
// nothing for the longest time are cut, so that a probe gets in always. A handler that panics is answered 500.
//
// # Access
//
// On loopback, where the Server listens unless it is told otherwise, the user of its process and root may ask, with
// curl, a browser, or a Prometheus that they run: the kernel says whose connection it is. The request names a loopback
// host: web pages can't. Other users of the host get a bare yes or no from /livez and /readyz.
//
// On any other address a Server starts only with Access, and then demands a token or a client certificate for
// everything but /livez and /readyz, which answer those who have none with a bare yes or no: a kubelet has no password.
// The same holds on loopback if Access is set, for instance for a Prometheus of another user. A token travels as it is:
// without TLS, who can listen on the network can read it.
package health
