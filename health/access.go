package health

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
)

// minToken is the least length of a token, in bytes.
const minToken = 16

// Access says which clients get answers. If Tokens or ClientCAFile is set, every request needs a token or a
// certificate, on any address, except for the bare answers of /livez and /readyz. Otherwise only this process's user
// and root get answers, over loopback. The tags name the variables that runtime/node reads.
type Access struct {
	// Tokens are the tokens that clients send as `Authorization: Bearer TOKEN`, each of at least 16 characters; any of
	// them is accepted. The variable has one. Clients without a token get only a bare yes or no, from `/livez` and
	// `/readyz`. Several tokens allow one to replace another, and distinguish clients that share an address.
	Tokens []string `env:"CARILLON_HEALTH_TOKEN" envSeparator:"\n" secret:"true"`

	// CertFile is a PEM file with the server's certificate. With it and its key, the endpoint speaks only TLS. Both
	// files are read again when they have changed, so that a certificate can be replaced while the job is running.
	CertFile string `env:"CARILLON_HEALTH_TLS_CERT"`
	// KeyFile is a PEM file with the certificate's key.
	KeyFile string `env:"CARILLON_HEALTH_TLS_KEY"`

	// ClientCAFile is a PEM file with CA certificates. Clients with a certificate that one of these has signed are let
	// in. It needs a server certificate.
	ClientCAFile string `env:"CARILLON_HEALTH_TLS_CLIENT_CA"`
}

// access is an Access whose files have been read.
type access struct {
	tokens      [][sha256.Size]byte
	tls         *tls.Config // nil: plain
	clientCerts bool
}

func (a *access) required() bool { return len(a.tokens) > 0 || a.clientCerts }

// refusal says why a client is refused. It doesn't repeat any of the request.
func (a *access) refusal(r *http.Request) string {
	var ways []string
	if len(a.tokens) > 0 {
		ways = append(ways, "a token (Authorization: Bearer TOKEN)")
	}
	if a.clientCerts {
		ways = append(ways, "a client certificate")
	}
	want := strings.Join(ways, ", or ")
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case scheme == "":
		return "send " + want
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return "the Authorization has no bearer token; send " + want
	case len(a.tokens) == 0:
		return "tokens are not accepted here; send " + want
	default:
		return "the token is not one of this process's (CARILLON_HEALTH_TOKEN, and the lines of " +
			"CARILLON_HEALTH_TOKEN_FILE)"
	}
}

// identify returns the client's identity, and whether it has proved it.
func (a *access) identify(r *http.Request) (identity, bool) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		hash := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
		return identity(hash[:16]), true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		// All hashes are compared, so that the time tells nothing about the token.
		hash, good := sha256.Sum256([]byte(token)), 0
		for i := range a.tokens {
			good |= subtle.ConstantTimeCompare(hash[:], a.tokens[i][:])
		}
		if good == 1 {
			return identity(hash[:16]), true
		}
	}
	return identity{}, false
}

// ours checks that a connection over loopback belongs to this process's user, or to root; the error says why not.
func ours(conn net.Conn) error {
	peer, ok := conn.RemoteAddr().(*net.TCPAddr)
	own, both := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !both {
		return fmt.Errorf("a connection from %v has no user", conn.RemoteAddr())
	}
	user, err := peerUser(unmapped(peer.AddrPort()), unmapped(own.AddrPort()))
	switch {
	case err != nil:
		return err
	case user != 0 && user != os.Geteuid():
		return fmt.Errorf("the connection is one of user %d", user)
	default:
		return nil
	}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// read checks the access for an address, and reads its files.
func (a *Access) read(addr string) (*access, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("health: address %q: %w (want host:port, for instance 127.0.0.1:0)", addr, err)
	}
	result := &access{clientCerts: a.ClientCAFile != ""}
	for i, token := range a.Tokens {
		if len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("health: token %d is malformed (CARILLON_HEALTH_TOKEN, then the lines of "+
				"CARILLON_HEALTH_TOKEN_FILE): want at least %d visible ASCII characters, without blanks", i+1, minToken)
		}
		result.tokens = append(result.tokens, sha256.Sum256([]byte(token)))
	}
	switch {
	case (a.CertFile == "") != (a.KeyFile == ""):
		return nil, errors.New("health: a TLS certificate and its key are set together (CARILLON_HEALTH_TLS_CERT, " +
			"CARILLON_HEALTH_TLS_KEY)")
	case a.ClientCAFile != "" && a.CertFile == "":
		return nil, errors.New("health: client certificates (CARILLON_HEALTH_TLS_CLIENT_CA) need TLS: set a " +
			"certificate and its key (CARILLON_HEALTH_TLS_CERT, CARILLON_HEALTH_TLS_KEY)")
	case !result.required() && !Loopback(host):
		return nil, fmt.Errorf("health: address %q would be open to anybody: set a token (CARILLON_HEALTH_TOKEN or "+
			"CARILLON_HEALTH_TOKEN_FILE; openssl rand -hex 32 makes one) or demand client certificates "+
			"(CARILLON_HEALTH_TLS_CERT, "+
			"CARILLON_HEALTH_TLS_KEY and CARILLON_HEALTH_TLS_CLIENT_CA), or stay on 127.0.0.1 (CARILLON_HEALTH_ADDR)",
			addr)
	}
	if a.CertFile == "" {
		return result, nil
	}
	cert := &certificate{certFile: a.CertFile, keyFile: a.KeyFile}
	if _, err := cert.get(nil); err != nil {
		return nil, err
	}
	// HTTP/1.1 only: a connection then has one request at a time, so that the limit of connections bounds the requests.
	result.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: cert.get, NextProtos: []string{"http/1.1"}}
	if a.ClientCAFile == "" {
		return result, nil
	}
	text, err := os.ReadFile(a.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("health: the certificates of clients' authorities (CARILLON_HEALTH_TLS_CLIENT_CA): %w",
			err)
	}
	result.tls.ClientCAs = x509.NewCertPool()
	if !result.tls.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("health: %s has no certificate in PEM (CARILLON_HEALTH_TLS_CLIENT_CA)", a.ClientCAFile)
	}
	// Not required: a kubelet has none, and a token is as good.
	result.tls.ClientAuth = tls.VerifyClientCertIfGiven
	return result, nil
}

// certificate is the server's certificate, in files that may be replaced.
type certificate struct {
	certFile, keyFile string

	mu   sync.Mutex
	last *tls.Certificate // the last valid one
}

// get reads the files for each connection. While they can't be read, the last valid certificate is used.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = &loaded
	}
	if c.last == nil {
		return nil, fmt.Errorf("health: the TLS certificate (CARILLON_HEALTH_TLS_CERT, CARILLON_HEALTH_TLS_KEY): %w",
			err)
	}
	return c.last, nil
}

// Loopback tells whether a host, with or without a port, is localhost or a loopback address. It looks up no names.
func Loopback(hostport string) bool {
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
