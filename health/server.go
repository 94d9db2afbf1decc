package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Limits of what a client may send, and how slowly. They bound what somebody who is not a friend can hold.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	maxBodyBytes      = 64 << 10
)

// Route is something that a Server shows beside the probes.
type Route struct {
	Path    string // "/api/v1/comms"
	Title   string // a few words, for the index
	Handler http.Handler
}

// Config describes a Server.
type Config struct {
	// Addr is where to listen: a loopback address and a port, of which 0 is any free one. "" means "127.0.0.1:0".
	Addr string

	// Registry holds the checks. Required.
	Registry *Registry

	// Routes are shown beside the probes, for instance /metrics.
	Routes []Route

	// Conditions make the process not ready where their declarations say so, and are shown; nil is none.
	Conditions *Conditions

	// Publisher has the snapshot that /api/v1/ras, ranks, comms and verdicts answer with; nil leaves them out.
	Publisher *Publisher

	// MinPollInterval is how long a client waits between two queries of one of those; who asks earlier is refused with 429.
	// 0 means DefaultMinPollInterval; less than 0 refuses nobody.
	MinPollInterval time.Duration

	// TrustedProxies are the addresses whose X-Forwarded-For is believed: behind a proxy, the client is who the proxy says.
	TrustedProxies []netip.Prefix

	// Title heads the index; "" means "Carillon".
	Title string

	// Logger hears what goes wrong with a connection; nil means slog.Default().
	Logger *slog.Logger
}

// Server is the health endpoint of a process, from Listen until Stop.
type Server struct {
	listener net.Listener
	http     http.Server
	served   chan error // Serve's answer
}

// Listen opens the endpoint and serves it in the background. The error names the address and what is wrong with it.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Registry == nil {
		return nil, errors.New("health: Config.Registry is nil")
	}
	addr := cfg.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	if err := requireLoopback(addr); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	handler, err := newHandler(&cfg)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("health: listen on %s: %w (port 0 takes any free one)", addr, err)
	}
	s := &Server{
		listener: listener,
		http: http.Server{
			Handler:           handler,
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		},
		served: make(chan error, 1),
	}
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// Addr is the address that the server listens on, with the port that it got.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL is where a person looks first.
func (s *Server) URL() string { return "http://" + s.Addr() + "/" }

// Stop stops listening at once and lets requests in progress end until ctx does; then their connections are cut. When
// it returns, the server's own goroutines have ended. It is called once.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("health: requests were cut off: %w", errors.Join(err, s.http.Close()))
	}
	if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("health: the server had ended before Stop: %w", serveErr))
	}
	return err
}

// newHandler puts the probes, the routes and the index together.
func newHandler(cfg *Config) (http.Handler, error) {
	mux := http.NewServeMux()
	index := &index{title: cfg.Title}
	for _, p := range []struct {
		probe
		title string
	}{
		{probe{name: "livez", kind: Live}, "can the process go on? (?verbose)"},
		{probe{name: "readyz", kind: Ready}, "can it do its work now? (?verbose)"},
		{probe{name: "healthz", kind: Live | Ready}, "both (?verbose)"},
	} {
		probe := &p.probe
		probe.registry, probe.conditions = cfg.Registry, cfg.Conditions
		mux.HandleFunc("/"+probe.name, probe.all)
		mux.HandleFunc("/"+probe.name+"/{check}", probe.one)
		index.add("/"+probe.name, p.title)
	}
	for _, route := range append(queryRoutes(cfg), cfg.Routes...) {
		if err := index.accepts(route); err != nil {
			return nil, err
		}
		mux.Handle(route.Path, route.Handler)
		index.add(route.Path, route.Title)
	}
	mux.Handle("/{$}", index)
	return guard(mux), nil
}

// queryRoutes are the documents of what was published.
func queryRoutes(cfg *Config) []Route {
	if cfg.Publisher == nil {
		return nil
	}
	interval := cfg.MinPollInterval
	if interval == 0 {
		interval = DefaultMinPollInterval
	}
	limiter := &pollLimiter{interval: interval}
	var link []string
	if slices.ContainsFunc(cfg.Routes, func(r Route) bool { return r.Path == EventsPath }) {
		link = []string{"<" + EventsPath + `>; rel="monitor"; type="text/event-stream"`}
	}
	routes := make([]Route, partCount)
	for p := range partCount {
		routes[p] = Route{Path: parts[p].path, Title: parts[p].title, Handler: &query{
			part: p, publisher: cfg.Publisher, limiter: limiter, link: link, refused: func() {},
			client: func(r *http.Request) client { return clientOf(r, cfg.TrustedProxies) },
		}}
	}
	return routes
}

// guard turns away what has no business here: other methods than reading, large bodies, and requests that name another
// host, as a web page does that rebinds its own name to this address.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			respond(w, http.StatusMethodNotAllowed, "only GET and HEAD are answered here\n")
			return
		}
		if !loopbackHost(r.Host) {
			respond(w, http.StatusMisdirectedRequest, "this endpoint answers on loopback only; ask for 127.0.0.1 or localhost\n")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// requireLoopback refuses addresses that others can reach: who asks from there would have to be authenticated, which
// this server can't do.
func requireLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("health: address %q: %w (want host:port, for instance 127.0.0.1:0)", addr, err)
	}
	if host == "" {
		return fmt.Errorf("health: address %q is every address of this host, open to anybody; use 127.0.0.1 or [::1]", addr)
	}
	if !loopbackHost(addr) {
		return fmt.Errorf("health: address %q is not a loopback address and would be open to anybody; use 127.0.0.1 or [::1]", addr)
	}
	return nil
}

// loopbackHost tells whether a host, with or without a port, is this host's loopback by its name alone. No name is looked up.
func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
