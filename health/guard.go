package health

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
)

// guard wraps all handlers: it refuses requests, and contains panics.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connectionOf(r); c != nil {
			defer c.serve()()
		}
		r.Pattern = "" // of the program's mux, where the endpoint is mounted
		out := &answer{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				s.contain(out, r, p)
			}
			s.metrics.answered(r.Pattern, out.status)
		}()
		if s.admit(out, r) {
			next.ServeHTTP(out, r)
		}
	})
}

// contain turns a panic into an answer. If an answer has begun, it closes the connection, so that the client doesn't
// take it for complete.
func (s *Server) contain(w *answer, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // net/http closes the connection and logs nothing
	}
	s.cfg.Logger.Error("the health endpoint's handler panicked", "path", r.URL.Path, "panic", p, "stack",
		string(debug.Stack()))
	if w.status != 0 {
		s.metrics.answered(r.Pattern, w.status)
		panic(http.ErrAbortHandler)
	}
	respond(w, http.StatusInternalServerError, "internal error; see the log\n")
}

// admit tells whether a request may be answered, and answers those that may not.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		respond(w, http.StatusMethodNotAllowed, "only GET and HEAD are answered here\n")
		return false
	}
	// A web page can read answers by rebinding its own name to this address, and can send requests whose answers it
	// doesn't see, which would use up the queries of others.
	if s.loopback && connectionOf(r) != nil && !Loopback(r.Host) {
		respond(w, http.StatusMisdirectedRequest,
			"this endpoint answers on loopback only; ask for 127.0.0.1 or localhost\n")
		return false
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		respond(w, http.StatusForbidden, "pages of other sites are not answered\n")
		return false
	}
	if !bodyFits(w, r) {
		respond(w, http.StatusRequestEntityTooLarge, "a query has no body\n")
		return false
	}
	if why := s.refusal(r); why != "" {
		if bare := s.probes[r.URL.Path]; bare != nil && bare.kind != Live|Ready {
			r.Pattern = r.URL.Path
			bare.yesOrNo(w, r)
			return false
		}
		status := http.StatusForbidden
		if s.access.required() {
			w.Header().Set("WWW-Authenticate", `Bearer realm="carillon"`)
			status = http.StatusUnauthorized
		}
		respond(w, status, why+"\n")
		return false
	}
	return true
}

// refusal says why a client is refused; empty if it isn't.
func (s *Server) refusal(r *http.Request) string {
	if s.access.required() {
		if _, ok := s.access.identify(r); !ok {
			return s.access.refusal(r)
		}
		return ""
	}
	c := connectionOf(r)
	if c == nil {
		return "" // another server's connection, which let it in
	}
	if err := c.ours(); err != nil {
		return fmt.Sprintf("this endpoint answers the user of its process and root: %v; for others, set a token "+
			"(CARILLON_HEALTH_TOKEN or CARILLON_HEALTH_TOKEN_FILE, in the process and in what asks)", err)
	}
	return ""
}

// bodyFits drains a request's body, and tells whether it was small enough.
func bodyFits(w http.ResponseWriter, r *http.Request) bool {
	if r.ContentLength > maxBodyBytes {
		return false
	}
	_, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBodyBytes))
	return err == nil
}

// streaming is for a handler whose answer has no end. The handler sets a deadline for each of its writes; until then,
// the server's applies. When the server stops, the connection is closed.
func (s *Server) streaming(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connectionOf(r)
		if c == nil { // another server's connection: only the request's context can be ended
			var ended func()
			c, r, ended = s.connections.mount(r)
			defer ended()
		}
		if !c.stream() {
			w.Header().Set("Retry-After", "10")
			respond(w, http.StatusServiceUnavailable, "too many clients are listening\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

type answer struct {
	http.ResponseWriter
	status int // 0: nothing was written
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
