package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	defaultPort   = "2379"
	defaultPrefix = "carillon"
	dialTime      = 5 * time.Second
	probeTime     = 5 * time.Second // without an answer until etcd counts as unreachable
)

// hosts divides a URL into the part before its hosts, the hosts, and the rest.
var hosts = regexp.MustCompile(`^(\w+://(?:[^@/?]*@)?)([^@/?]*)(.*)$`)

var errWant = errors.New("want a URL such as etcd://host:2379")

// Config says how etcd is reached; ParseURL makes it.
type Config struct {
	client clientv3.Config
	prefix string
	shown  string // without the password
}

// ParseURL reads the address of an etcd, and its credentials:
//
//	etcd://[user:password@]host[:port],…[/prefix]
//	etcds://…  over TLS; ?cacert=, ?cert= and ?key= are paths of PEM files; cacert replaces the system's authorities
//
// Keys are written below prefix, which defaults to "carillon". It doesn't use the network, and reads only these files.
func ParseURL(text string) (*Config, error) {
	all := hosts.FindStringSubmatch(text) // url.Parse doesn't accept several hosts
	if all == nil {
		return nil, errWant
	}
	u, err := url.Parse(all[1] + all[3])
	if err != nil {
		return nil, errWant // err would show a password
	}
	u.Host = all[2]
	c := &Config{prefix: strings.Trim(u.Path, "/"), shown: u.Redacted()}
	scheme := map[string]string{"etcd": "http", "etcds": "https"}[u.Scheme]
	switch {
	case scheme == "":
		return nil, fmt.Errorf("want a URL such as etcd://host:2379, or etcds:// for TLS, not %s://", u.Scheme)
	case u.Host == "":
		return nil, errWant
	case u.RawQuery != "" && scheme == "http":
		return nil, errors.New("certificates are for etcds://")
	}
	if c.prefix == "" {
		c.prefix = defaultPrefix
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		one, err := url.Parse(scheme + "://" + host)
		if err != nil || one.Host == "" {
			return nil, errWant
		}
		if one.Port() == "" {
			one.Host += ":" + defaultPort
		}
		c.client.Endpoints = append(c.client.Endpoints, one.String())
	}
	if u.User != nil {
		c.client.Username = u.User.Username()
		c.client.Password, _ = u.User.Password()
	}
	if scheme == "https" {
		if c.client.TLS, err = readTLS(u.Query()); err != nil {
			return nil, err
		}
	}
	c.client.DialTimeout, c.client.DialKeepAliveTime, c.client.DialKeepAliveTimeout = dialTime, probeTime, probeTime
	c.client.Logger = zap.NewNop() // errors say enough
	c.client.MaxUnaryRetries = 2   // the second with another token, if the first one's has expired
	c.client.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}
	return c, nil
}

// failFast makes the first calls of a session return the connection's error. The client makes all calls wait for a
// connection; without failFast they would return their context's error, which doesn't say what is wrong.
func failFast(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	switch path.Base(method) {
	case "Authenticate", "LeaseGrant":
		opts = append(opts, grpc.WaitForReady(false))
	}
	return call(ctx, method, req, reply, cc, opts...)
}

func readTLS(q url.Values) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := q.Get("cacert"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", path)
		}
	}
	if q.Get("cert") != "" || q.Get("key") != "" {
		pair, err := tls.LoadX509KeyPair(q.Get("cert"), q.Get("key"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
