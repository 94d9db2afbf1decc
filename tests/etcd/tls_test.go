package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// credentials are the files of a certificate and its key.
type credentials struct{ cert, key string }

// TestTLS: ranks meet if they and etcd trust each other's certificates. If a certificate is refused, the error names
// it, and the rank doesn't retry until its context ends.
func TestTLS(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	server := ca.issue("etcd", x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth) // its gateway is a client, too
	client := ca.issue("rank", x509.ExtKeyUsageClientAuth)
	stranger := other.issue("stranger", x509.ExtKeyUsageClientAuth)
	addr, oneSided := e2e.FreeAddr(t), e2e.FreeAddr(t)
	start(t, addr, "--cert-file", server.cert, "--key-file", server.key, "--client-cert-auth",
		"--trusted-ca-file", ca.path)
	start(t, oneSided, "--cert-file", server.cert, "--key-file", server.key)
	for name, c := range map[string]struct {
		addr   string
		ca     *authority
		client credentials
		says   string // empty: the ranks meet
	}{
		"both certificates":      {addr, ca, client, ""},
		"etcd's certificate":     {oneSided, ca, credentials{}, ""},
		"etcd's of another CA":   {addr, other, client, "certificate signed by unknown authority"},
		"no CA of its own":       {addr, nil, client, "certificate signed by unknown authority"},
		"a rank's of another CA": {addr, ca, stranger, "remote error: tls: bad certificate"},
		"a rank without one":     {addr, ca, credentials{}, "remote error: tls: bad certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			id, done := newID(t), make(chan error, 2)
			for n := range 2 {
				r := dial(t, tlsURL(c.addr, c.ca, c.client), id)
				go func() {
					_, err := r.Exchange(rendezvoustest.Within(t), "cards", n, 2, nil)
					done <- err
				}()
			}
			for range 2 {
				err := <-done
				if c.says == "" {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				system, ok := errors.AsType[*lifecycle.SystemError](err)
				if !ok || !strings.Contains(system.Error(), c.says) || errors.Is(err, context.DeadlineExceeded) ||
					!strings.Contains(system.Error(), "cacert= is the authority") {
					t.Errorf("it is told %v, want a SystemError with %q", err, c.says)
				}
			}
		})
	}
	env := append(slices.Clone(jobEnv), "CARILLON_RENDEZVOUS="+tlsURL(addr, ca, client))
	checkJob(t, env, "meeting at etcds://"+addr)
}

// tlsURL is the URL of an etcd with TLS.
func tlsURL(addr string, ca *authority, client credentials) string {
	q := url.Values{}
	if ca != nil {
		q.Set("cacert", ca.path)
	}
	if client != (credentials{}) {
		q.Set("cert", client.cert)
		q.Set("key", client.key)
	}
	return "etcds://" + addr + "/test?" + q.Encode()
}

// authority is a certificate authority of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.path = a.write(name, "CERTIFICATE", a.cert.Raw)
	return a
}

// issue makes a certificate for loopback.
func (a *authority) issue(name string, usages ...x509.ExtKeyUsage) credentials {
	a.t.Helper()
	c, k := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: usages, KeyUsage: x509.KeyUsageDigitalSignature,
	})
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return credentials{a.write(name, "CERTIFICATE", c.Raw), a.write(name+"-key", "PRIVATE KEY", der)}
}

// sign makes a key and a certificate for it, signed by the authority, or self-signed for the authority's own.
func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name+".pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}
