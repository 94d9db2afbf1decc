// Package health answers over HTTP how a process is, in the manner of Kubernetes.
//
// A Registry holds named checks. Each is for liveness (restart me if it fails), for readiness (give me no work while it
// fails) or for both; a Server shows them:
//
//	/livez  /readyz  /healthz     "ok", or 503 and the checks that fail; ?verbose lists all of them, ?exclude=name leaves one
//	                              out, and /readyz/name asks for one alone
//	/metrics                      Prometheus
//	/                             an index of these and of what else was mounted
//
// Asking costs the process little, however often and however rudely it is done: a check that is still running is not
// started again, requests are small and bounded in time, and nothing here takes a lock that a communicator takes. The server
// listens on a loopback address only, and answers only to requests that name one.
package health
