package health

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of a request. With the times below, they bound the resources that a hostile client can hold.
const (
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 64 << 10
)

type times struct{ header, request, answer, idle time.Duration }

var defaultTimes = times{
	header: 5 * time.Second, request: 10 * time.Second, answer: 30 * time.Second,
	idle: 60 * time.Second,
}

// Route is a handler of a Server besides the probes.
type Route struct {
	Path    string // "/api/v1/traces"
	Title   string // a few words, for the index
	Handler http.Handler

	// Stream is for an answer without an end, such as EventsPath's, to which the server's timeout doesn't apply. The
	// handler sets a deadline before each of its writes, with http.ResponseController, and returns when the request's
	// context ends, as it does when the server stops.
	Stream bool
}

// Config describes a Server.
type Config struct {
	// Addr is the address to listen at; port 0 is any free one. "" means "127.0.0.1:0". Addresses beyond loopback need
	// Access.
	Addr string

	// Access says which clients get answers. The zero Access allows this process's user and root, over loopback.
	Access Access

	// Registry holds the checks. Required.
	Registry *Registry

	// Routes are further handlers, for instance /metrics.
	Routes []Route

	// Conditions are shown, and make the process not ready if their declarations say so. It may be nil.
	Conditions *Conditions

	// Publisher has the snapshot for /api/v1/ras, ranks, comms and verdicts; nil leaves these out.
	Publisher *Publisher

	// MinPollInterval is the least time between a client's queries for one of those; an earlier query is refused with
	// 429. 0 refuses none. PollBurst is how many queries a client may make without waiting; 0 means 1.
	MinPollInterval time.Duration
	PollBurst       int

	// TrustedProxies are the proxies whose X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix

	// Title heads the index; "" means "Carillon".
	Title string

	// Logger gets the errors of connections and handlers; nil means slog.Default().
	Logger *slog.Logger

	times times // defaultTimes if zero
}

// Server is the health endpoint of a process, from New or Listen until Stop. It is a prometheus.Collector of its own
// metrics.
type Server struct {
	cfg      Config
	access   *access
	loopback bool // it listens only on loopback
	seed     maphash.Seed
	handler  http.Handler
	listener net.Listener // nil: it doesn't listen
	http     http.Server
	served   chan error        // Serve's result
	probes   map[string]*probe // by path

	connections connections
	metrics     *metrics
	prometheus.Collector
}

// New makes an endpoint for a program to mount in its own server: at /, or elsewhere with http.StripPrefix. It doesn't
// listen, so the program's server decides which clients reach it; Access still applies. Stop ends it.
func New(cfg Config) (*Server, error) {
	if cfg.Registry == nil {
		return nil, errors.New("health: Config.Registry is nil")
	}
	cfg.Addr, cfg.Logger = cmp.Or(cfg.Addr, "127.0.0.1:0"), cmp.Or(cfg.Logger, slog.Default())
	cfg.times = cmp.Or(cfg.times, defaultTimes)
	access, err := cfg.Access.read(cfg.Addr)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, access: access, loopback: Loopback(cfg.Addr), seed: maphash.MakeSeed(), served: make(chan error, 1),
	}
	s.metrics = newMetrics(&s.connections, cfg.Conditions)
	s.Collector = s.metrics
	s.connections.max, s.connections.maxStreams, s.connections.cut = maxConnections, maxStreams, s.metrics.cut.Inc
	s.handler, err = s.newHandler()
	return s, err
}

// Listen makes an endpoint and serves it in the background. An error names the address and what is wrong with it.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	cfg = s.cfg
	var lc net.ListenConfig
	if s.listener, err = lc.Listen(ctx, "tcp", cfg.Addr); err != nil {
		return nil, fmt.Errorf("health: listen on %s: %w (port 0 takes any free one)", cfg.Addr, err)
	}
	listener := s.listener
	if s.access.tls != nil {
		listener = tls.NewListener(listener, s.access.tls)
	}
	s.http = http.Server{
		Handler:           s,
		ReadHeaderTimeout: cfg.times.header,
		ReadTimeout:       cfg.times.request,
		WriteTimeout:      cfg.times.answer,
		IdleTimeout:       cfg.times.idle,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		ConnContext:       s.connections.context,
		ConnState:         s.connections.state,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2: see Access
	}
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// ServeHTTP is for a program that mounts the endpoint.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Addr is the address that the server listens on, with the port that it got; empty if it doesn't.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// URL is the URL of the page; empty if the server doesn't listen.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	if s.access.tls != nil {
		return "https://" + s.Addr() + "/"
	}
	return "http://" + s.Addr() + "/"
}

// Stop stops listening and ends streams at once, and lets other requests in progress end until ctx ends; then it closes
// their connections. When it returns, the server's own goroutines have ended. It is called once.
func (s *Server) Stop(ctx context.Context) error {
	s.connections.endStreams()
	if s.listener == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("health: requests were cut off: %w", errors.Join(err, s.http.Close()))
	}
	if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("health: the server had ended before Stop: %w", serveErr))
	}
	return err
}

// newHandler makes the handler of the probes, the routes and the page.
func (s *Server) newHandler() (http.Handler, error) {
	mux := http.NewServeMux()
	page := newPage(s)
	s.probes = map[string]*probe{}
	for _, p := range []struct {
		path  string
		kind  Kind
		title string
	}{
		{"/livez", Live, "is the process alive, or should it be restarted? (?verbose)"},
		{"/readyz", Ready, "can it do its work now? (?verbose)"},
		{"/healthz", Live | Ready, "both (?verbose)"},
	} {
		probe := &probe{name: p.path[1:], kind: p.kind, registry: s.cfg.Registry, conditions: s.cfg.Conditions}
		mux.HandleFunc(p.path, probe.all)
		mux.HandleFunc(p.path+"/{check}", probe.one)
		page.add(p.path, p.title)
		s.probes[p.path] = probe
	}
	page.probe = s.probes["/healthz"]
	for _, route := range append(s.queryRoutes(), s.cfg.Routes...) {
		if err := page.accepts(route); err != nil {
			return nil, err
		}
		handler := route.Handler
		if route.Stream {
			handler = s.streaming(handler)
		}
		mux.Handle(route.Path, handler)
		page.add(route.Path, route.Title)
	}
	mux.Handle("/{$}", page)
	return s.guard(mux), nil
}

func (s *Server) queryRoutes() []Route {
	if s.cfg.Publisher == nil {
		return nil
	}
	limiter := &pollLimiter{interval: s.cfg.MinPollInterval, burst: s.cfg.PollBurst}
	var link []string
	if slices.ContainsFunc(s.cfg.Routes, func(r Route) bool { return r.Path == EventsPath }) {
		link = []string{"<" + EventsPath + `>; rel="monitor"; type="text/event-stream"`}
	}
	routes := make([]Route, len(parts))
	for i, p := range parts {
		routes[i] = Route{Path: p.path, Title: p.title, Handler: &query{i, s, limiter, link}}
	}
	return routes
}

// client is the client of a request, by its connection or by a trusted proxy.
func (s *Server) client(r *http.Request) client {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // it fails only in tests
	identity, _ := s.access.identify(r)
	addr := forwarded(peer.Addr(), r.Header["X-Forwarded-For"], s.cfg.TrustedProxies)
	return client{network(addr), identity, maphash.String(s.seed, r.UserAgent())}
}
