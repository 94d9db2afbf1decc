package etcd

import (
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// Tests that need an etcd are among the tests that start real components; there the package passes rendezvoustest.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseURL(t *testing.T) {
	for text, want := range map[string][]string{
		"etcd://a":                      {"carillon", "http://a:2379"},
		"etcd://a:1,b/":                 {"carillon", "http://a:1", "http://b:2379"},
		"etcd://u:hush@10.0.0.1/my/own": {"my/own", "http://10.0.0.1:2379"},
		"etcds://[::1]":                 {"carillon", "https://[::1]:2379"},
	} {
		c, err := ParseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, append([]string{c.prefix}, c.client.Endpoints...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if (c.client.TLS != nil) != strings.HasPrefix(text, "etcds") || strings.Contains(c.shown, "hush") {
			t.Errorf("%s: TLS %v, shown as %s", text, c.client.TLS, c.shown)
		}
	}
	for text, want := range map[string]string{
		"tcp://a:1": "not tcp://", "etcd://": "want a URL", "etcd://a,": "want a URL",
		"etcd://a:hush@b:%": "want a URL",
		"etcd://a?cacert=x": "certificates are for etcds://", "etcds://a?cacert=/no/such": "no such file",
		"etcds://a?cert=/no/such": "no such file", "etcds://a?cacert=/dev/null": "has no certificate",
	} {
		if _, err := ParseURL(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

const prefix = "p/"

// book is a room with a helper for ranks' writes.
type book struct {
	*room
	t *testing.T
}

func newBook(t *testing.T) book {
	t.Helper()
	id, err := lifecycle.UniqueIDFromSecret([]byte("of this test"), "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSeal(id)
	if err != nil {
		t.Fatal(err)
	}
	return book{newRoom("own", s), t}
}

func (b book) write(since bool, name string, v any) (begins bool) {
	b.t.Helper()
	value, err := b.seal.close(prefix+name, v)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.put(prefix, []byte(prefix+name), []byte(value), since)
}

// TestRemainsOfARank0: if rank 0 had died before this rank came, its generation ends with its lease; if it had an event
// since, the exchange fails.
func TestRemainsOfARank0(t *testing.T) {
	for _, lives := range []bool{false, true} {
		b := newBook(t)
		zero, own := rendezvous.Member{Rank: 0, Size: 3}, rendezvous.Member{Rank: 1, Size: 3}
		b.write(false, rankKeys+"zero", zero)
		if !b.write(false, generationKey, "a") || b.write(false, generationKey, "a") {
			t.Error("a generation begins once")
		}
		b.write(lives, eventKeys+"zero/1", event{Generation: "a", What: joined, Key: "k", Member: zero})
		var got []answer
		b.expect(func(a answer) { got = append(got, a) })
		b.write(true, eventKeys+"own/1", event{Generation: "a", What: joined, Key: "k", Member: own})
		b.gone(prefix, []byte(prefix+eventKeys+"zero/1"))
		b.gone(prefix, []byte(prefix+rankKeys+"zero"))
		if lives && (len(got) != 1 || got[0].Failed == nil || got[0].Failed.Gone()[0].How != rendezvous.Lost) {
			t.Errorf("a rank 0 that was there: %+v", got)
		}
		if !lives && (len(got) != 0 || b.begun() != "") {
			t.Errorf("a rank 0 that had died: %+v, generation %q", got, b.begun())
		}
	}
}

// TestForeignValues: values written without the secret, or copied to another key, are ignored.
func TestForeignValues(t *testing.T) {
	b := newBook(t)
	value, err := b.seal.close(prefix+rankKeys+"a", "generation")
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []string{"", "x", `"generation"`, value} {
		if b.put(prefix, []byte(prefix+generationKey), []byte(forged), true) || b.begun() != "" {
			t.Errorf("%q was taken for a generation", forged)
		}
	}
}

func TestEarlierGenerationsAreNotHeard(t *testing.T) {
	b := newBook(t)
	var got []answer
	b.expect(func(a answer) { got = append(got, a) })
	own := rendezvous.Member{Rank: 0, Size: 1}
	b.write(true, generationKey, "b")
	b.write(true, eventKeys+"own/1", event{Generation: "a", What: joined, Key: "k", Member: own})
	if len(got) != 0 {
		t.Errorf("of another generation: %+v", got)
	}
	b.write(true, eventKeys+"own/2", event{
		Generation: "b", What: joined, Key: "k", Member: own, Payload: []byte("card"),
	})
	if len(got) != 1 || got[0].what != joined || string(got[0].Payloads[0]) != "card" {
		t.Errorf("of this one: %+v", got)
	}
}

// TestCertificateOfAStranger: a rank that doesn't trust the server at etcd's address reports that at once.
func TestCertificateOfAStranger(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	config, err := ParseURL("etcds://" + server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	id, err := lifecycle.UniqueIDFromSecret([]byte("of this test"), "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(config, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Exchange(t.Context(), "cards", 0, 1, nil)
	system, ok := errors.AsType[*lifecycle.SystemError](err)
	if !ok || !strings.Contains(system.Error(), "certificate signed by unknown authority") ||
		!strings.Contains(system.Error(), "cacert=") {
		t.Errorf("it is told %v", err)
	}
}
