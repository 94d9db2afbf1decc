package health

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	tokenA = "0123456789abcdef0123456789abcdef"
	tokenB = "fedcba9876543210fedcba9876543210"
)

// TestBeyondLoopbackSomethingMustBeProved: without a token or certificates it doesn't start, and says what to set.
func TestBeyondLoopbackSomethingMustBeProved(t *testing.T) {
	dir := t.TempDir()
	_, _, caFile := authority(t, dir, "ca")
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"CARILLON_HEALTH_TOKEN":      {Addr: "0.0.0.0:0"},
		"CARILLON_HEALTH_TLS_CLIENT": {Addr: ":0"},
		// TLS alone proves nothing
		"would be open":                     {Addr: "[::]:0", Access: Access{CertFile: certFile, KeyFile: keyFile}},
		"token 2 is malformed":              {Access: Access{Tokens: []string{tokenA, "short"}}},
		"token 1 is malformed":              {Access: Access{Tokens: []string{"0123456789 abcdef"}}},
		"its key are set together":          {Access: Access{CertFile: certFile}},
		"TLS_CLIENT_CA) need TLS:":          {Access: Access{ClientCAFile: caFile}},
		"CARILLON_HEALTH_TLS_KEY): open":    {Access: Access{CertFile: junk + "x", KeyFile: keyFile}},
		"CARILLON_HEALTH_TLS_KEY): tls: fa": {Access: Access{CertFile: junk, KeyFile: keyFile}},
		"has no certificate in PEM":         {Access: Access{CertFile: certFile, KeyFile: keyFile, ClientCAFile: junk}},
		"CARILLON_HEALTH_TLS_CLIENT_CA): open": {Access: Access{
			CertFile: certFile, KeyFile: keyFile,
			ClientCAFile: junk + "x",
		}},
	} {
		cfg.Registry = &Registry{}
		s, err := Listen(t.Context(), cfg)
		if err == nil {
			_ = s.Stop(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
		if err != nil && strings.Contains(err.Error(), tokenA) {
			t.Errorf("the error tells a token: %v", err)
		}
	}
}

// TestToken: a client without a token gets only a bare yes or no from two probes, whatever it asks for.
func TestToken(t *testing.T) {
	r := &Registry{}
	if err := r.Register("secret", Live|Ready, 0,
		func(context.Context) error { return errors.New("disk /mnt/secret is full") }); err != nil {
		t.Fatal(err)
	}
	p := &Publisher{}
	p.Publish(sample())
	s := listen(t, Config{
		Addr: "0.0.0.0:0", Access: Access{Tokens: []string{tokenA, tokenB}}, Registry: r, Publisher: p,
		MinPollInterval: DefaultMinPollInterval,
	})
	for _, tc := range []struct {
		path, authorization string
		status              int
		body                string // all of it if it is short
	}{
		{"/livez", "", 503, "not ok"},
		{"/readyz?verbose", "", 503, "not ok"},
		{"/readyz?format=json", "", 503, "not ok"},
		{"/readyz?exclude=secret", "", 503, "not ok"},
		{"/readyz/secret", "", 401, "send a token"},
		{"/healthz", "", 401, "send a token"},
		{"/", "", 401, "send a token"},
		{"/api/v1/ras", "", 401, "send a token"},
		{"/nowhere", "", 401, "send a token"},
		{"/api/v1/ras", tokenA, 401, "the Authorization has no bearer token; send a token"},
		{"/api/v1/ras", "Bearer", 401, "the Authorization has no bearer token; send a token"},
		{"/api/v1/ras", "Basic " + tokenA, 401, "the Authorization has no bearer token; send a token"},
		{
			"/api/v1/ras", "Bearer " + tokenA[1:], 401,
			"the token is not one of this process's (CARILLON_HEALTH_TOKEN, ",
		},
		{"/api/v1/ras", "Bearer " + tokenA + " ", 200, `"schema": 1`}, // trailing blanks of a header are ignored
		{"/api/v1/ras", "Bearer " + tokenA, 429, "asked too often"},
		{"/api/v1/ras", "bearer " + tokenB, 200, `"schema": 1`}, // another client at the same address
		{"/readyz?verbose", "Bearer " + tokenB, 503, "[-]secret failed: disk /mnt/secret is full"},
		{"/readyz?exclude=secret", "Bearer " + tokenB, 200, "ok"},
	} {
		lines := []string{"Authorization: " + tc.authorization}
		if tc.authorization == "" {
			lines = nil
		}
		resp, body := send(t, s, strings.Replace(request(tc.path, lines...), "localhost", "node7.example", 1))
		if resp.StatusCode != tc.status || !strings.HasPrefix(body, tc.body) && !strings.Contains(body, tc.body) ||
			tc.status == 401 && (strings.Contains(body, "secret") || strings.Contains(body, tokenA[1:])) {
			t.Errorf("%s with %q: %d %q, want %d %q",
				tc.path, tc.authorization, resp.StatusCode, body, tc.status, tc.body)
		}
		if len(tc.body) <= len("not ok") && body != tc.body {
			t.Errorf("%s: %q, want %q and nothing else", tc.path, body, tc.body)
		}
		if resp.StatusCode == 401 && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: WWW-Authenticate: %q", tc.path, resp.Header.Get("WWW-Authenticate"))
		}
	}
}

// TestRefusal: a refused client learns why, and what is accepted here.
func TestRefusal(t *testing.T) {
	token := [][sha256.Size]byte{sha256.Sum256([]byte(tokenA))}
	for _, tc := range []struct {
		access        access
		authorization string
		want          string
	}{
		{access{tokens: token}, "", "send a token (Authorization: Bearer TOKEN)"},
		{
			access{tokens: token, clientCerts: true},
			"",
			"send a token (Authorization: Bearer TOKEN), or a client certificate",
		},
		{access{clientCerts: true}, "", "send a client certificate"},
		{access{clientCerts: true}, "Bearer " + tokenA, "tokens are not accepted here; send a client certificate"},
		{
			access{tokens: token, clientCerts: true},
			"Bearer ",
			"the Authorization has no bearer token; " +
				"send a token (Authorization: Bearer TOKEN), or a client certificate",
		},
	} {
		r := &http.Request{Header: http.Header{}}
		if tc.authorization != "" {
			r.Header.Set("Authorization", tc.authorization)
		}
		if got := tc.access.refusal(r); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.authorization, got, tc.want)
		}
	}
}

// TestClientCertificates: a certificate that the authority signed opens everything; none, or another authority's, does
// not. The server's own certificate is replaced while it runs.
func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, caKey, caFile := authority(t, dir, "ca")
	other, otherKey, _ := authority(t, dir, "other")
	certFile, keyFile := issue(t, dir, "server", ca, caKey, 1)
	s := listen(t, Config{
		Addr: "0.0.0.0:0", Access: Access{CertFile: certFile, KeyFile: keyFile, ClientCAFile: caFile},
	})
	if !strings.HasPrefix(s.URL(), "https://") {
		t.Errorf("URL %s", s.URL())
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	ask := func(path string, certs ...tls.Certificate) (int, *big.Int, error) {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{
				RootCAs: roots, ServerName: "localhost", Certificates: certs,
				MinVersion: tls.VersionTLS12,
			},
		}}
		resp, err := client.Get("https://" + strings.Replace(s.Addr(), "[::]", "127.0.0.1", 1) + path)
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.TLS.PeerCertificates[0].SerialNumber, err
	}
	load := func(certFile, keyFile string) tls.Certificate {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	for _, tc := range []struct {
		path   string
		certs  []tls.Certificate
		status int // 0: no connection
	}{
		{"/livez", nil, 200},
		{"/healthz", nil, 401},
		{"/healthz", []tls.Certificate{load(issue(t, dir, "friend", ca, caKey, 7))}, 200},
		{"/livez", []tls.Certificate{load(issue(t, dir, "stranger", other, otherKey, 8))}, 0},
	} {
		if tc.status == 0 { // force the client to send a certificate that it knows to be useless here
			conn, dialErr := tls.Dial("tcp", s.listener.Addr().String(), &tls.Config{
				RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return &tc.certs[0], nil
				},
			})
			if dialErr == nil {
				_, dialErr = conn.Read(make([]byte, 1)) // TLS 1.3 reports it only now
				_ = conn.Close()
			}
			if dialErr == nil || !strings.Contains(dialErr.Error(), "certificate") {
				t.Errorf("a stranger's certificate: %v", dialErr)
			}
			continue
		}
		status, serial, err := ask(tc.path, tc.certs...)
		if err != nil || status != tc.status || serial.Int64() != 1 {
			t.Errorf("%s: %d, certificate %v, %v; want %d", tc.path, status, serial, err, tc.status)
		}
	}
	issue(t, dir, "server", ca, caKey, 2)
	if _, serial, err := ask("/livez"); err != nil || serial.Int64() != 2 {
		t.Errorf("after it was replaced: certificate %v, %v", serial, err)
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	if _, serial, err := ask("/livez"); err != nil || serial.Int64() != 2 {
		t.Errorf("while it is replaced: certificate %v, %v", serial, err)
	}
	// The answer to plain HTTP says what is wrong, and the server doesn't wait for a handshake that never comes.
	if resp, body := send(t, s, request("/livez")); resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(body, "HTTPS") {
		t.Errorf("plain: %d %q", resp.StatusCode, body)
	}
}

// authority makes a certificate that signs others, its key, and the file that it is in.
func authority(t *testing.T, dir, name string) (*x509.Certificate, *ecdsa.PrivateKey, string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	cert := sign(t, dir, name, template, template, key, key)
	return cert, key, filepath.Join(dir, name+".pem")
}

// issue makes a certificate and its key, as files.
func issue(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey, serial int64) (certFile,
	keyFile string,
) {
	t.Helper()
	sign(t, dir, name, &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, newKey(t), caKey)
	return filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, dir, name string, template, parent *x509.Certificate, key,
	parentKey *ecdsa.PrivateKey,
) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
