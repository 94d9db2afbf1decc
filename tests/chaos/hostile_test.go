package chaos

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// hostile puts an attacker into the job's network, who hears its packets but doesn't know its secret, and who sends all
// kinds of packets to the ports of its meshes, and to all other ports. The job must not be affected.
func hostile(t *testing.T, l *lab) {
	n := newNetwork(t)
	// A port scan may take the processor for some seconds, which must not count as a stall here.
	j := l.start(t, n, "hostile", "", "CARILLON_STALL_THRESHOLD=10s", "CARILLON_SLOW_THRESHOLD=10s")
	meshes := j.meshes()
	heard := overhear(t, n, meshes, 64)
	before := j.descriptors()
	var said [len(j.runs)]int // before the attack
	for i, run := range j.runs {
		said[i] = len(run.Output())
	}

	for name, attack := range map[string]func(){
		"garbage":   func() { garbage(t, meshes) },
		"truncated": func() { spoiled(t, heard) },
		"replayed":  func() { replayed(t, heard) },
		"wrong key": func() { wrongKey(t, n, meshes) },
		"streams":   func() { streams(t, meshes, heard) },
		"port scan": func() { scan(n, meshes) },
	} {
		began := time.Now()
		attack()
		j.moves(10)
		t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond))
	}

	for rank, refused := range j.refused() {
		if refused["stranger"] == 0 || refused["replay"] == 0 {
			t.Errorf("rank %d refused %v; some of each were sent", rank, refused)
		}
	}
	j.freed(before)
	for i, run := range j.runs {
		if out := run.Output()[said[i]:]; regexp.MustCompile(`level=WARN|level=ERROR|panic`).MatchString(out) {
			t.Errorf("host %d noticed:\n%s", i, out)
		}
	}
	j.quiet("strangers send garbage")
	j.end()
}

// meshes returns the addresses of the ranks' meshes, which the ranks write beside their tapes.
func (j *job) meshes() []netip.AddrPort {
	j.t.Helper()
	var addrs []netip.AddrPort
	for _, h := range j.net.hosts {
		files, err := filepath.Glob(filepath.Join(h.tapes, j.name, "*.ras"))
		if err != nil || len(files) != perHost {
			j.t.Fatalf("%s has files %q, want %d; %v", h.name, files, perHost, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				j.t.Fatal(err)
			}
			addrs = append(addrs, netip.MustParseAddrPort(strings.TrimSpace(string(text))))
		}
	}
	return addrs
}

// packet is a packet that the meshes sent each other.
type packet struct {
	to   netip.AddrPort
	body []byte
}

// overhear listens at the switch until it has heard so many packets to the meshes, with some to each.
func overhear(t *testing.T, n *network, meshes []netip.AddrPort, count int) []packet {
	t.Helper()
	// All protocols: packets that a switch forwards are not delivered to its host's IPv4.
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	left := map[netip.AddrPort]bool{}
	for _, m := range meshes {
		left[m] = true
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	var heard []packet
	buf := make([]byte, 1<<16)
	for len(heard) < count || len(left) > 0 {
		size, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatalf("after %d packets: %v", len(heard), err)
		}
		to, body, ok := datagram(buf[:size])
		for _, m := range meshes {
			if ok && to == m {
				heard = append(heard, packet{to, body})
				delete(left, m)
			}
		}
	}
	return heard
}

// datagram parses an IPv4 packet that contains UDP.
func datagram(b []byte) (to netip.AddrPort, body []byte, ok bool) {
	const ip, udp = 20, 8
	if len(b) < ip+udp || b[9] != unix.IPPROTO_UDP || b[0] != 0x45 {
		return to, nil, false
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	if total < ip+udp || total > len(b) {
		return to, nil, false
	}
	addr, _ := netip.AddrFromSlice(b[16:20])
	to = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[ip+2:]))
	return to, append([]byte(nil), b[ip+udp:total]...), true
}

// send sends packets from a port of its own.
func send(t *testing.T, packets func(yield func(packet) bool)) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is to come
	for p := range packets {
		if _, err := c.WriteToUDPAddrPort(p.body, p.to); err != nil {
			t.Fatal(err)
		}
	}
}

func garbage(t *testing.T, meshes []netip.AddrPort) {
	send(t, func(yield func(packet) bool) {
		for i := range 2000 {
			body := make([]byte, mathrand.IntN(1400))
			_, _ = rand.Read(body) // never fails
			if !yield(packet{meshes[i%len(meshes)], body}) {
				return
			}
		}
	})
}

// spoiled sends overheard packets truncated, and with one bit flipped.
func spoiled(t *testing.T, heard []packet) {
	send(t, func(yield func(packet) bool) {
		for _, p := range heard {
			for range 10 {
				changed := append([]byte(nil), p.body...)
				changed[mathrand.IntN(len(changed))] ^= 1 << mathrand.IntN(8)
				if !yield(packet{p.to, p.body[:mathrand.IntN(len(p.body))]}) || !yield(packet{p.to, changed}) {
					return
				}
			}
		}
	})
}

func replayed(t *testing.T, heard []packet) {
	send(t, func(yield func(packet) bool) {
		for range 10 {
			for _, p := range heard {
				if !yield(p) {
					return
				}
			}
		}
	})
}

// wrongKey starts a member of a job with the same name but another secret.
func wrongKey(t *testing.T, n *network, meshes []netip.AddrPort) {
	self, err := mesh.Self(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mesh.Start(mesh.Config{
		Self: self, Secret: []byte(strings.Repeat("guessed ", mesh.SecretSize/8)), Job: "hostile", Tuning: mesh.LAN(),
		Bind: netip.AddrPortFrom(netip.MustParseAddr(n.addr(254)), 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range meshes {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		if _, err := m.Join(ctx, addr); err == nil {
			t.Errorf("%v took in who doesn't know the secret", addr)
		}
		cancel()
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// streams opens many connections: some send nothing, some garbage, some begin a handshake, and some replay overheard
// packets.
func streams(t *testing.T, meshes []netip.AddrPort, heard []packet) {
	for _, addr := range meshes {
		var open []net.Conn
		for i := range 200 {
			c, err := net.DialTimeout("tcp4", addr.String(), 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			body := heard[i%len(heard)].body
			switch i % 4 {
			case 0:
				continue
			case 1:
				body = make([]byte, 4096)
				_, _ = rand.Read(body) // never fails
			case 2: // TLS, announcing the longest record
				body = []byte{0x16, 0x03, 0x01, 0x40, 0x00, 0x01}
			}
			_, _ = c.Write(body) // the connection may already be closed
		}
		for _, c := range open {
			_ = c.Close() // or the other side has
		}
	}
}

// scan looks for open ports on both hosts: around those of the meshes, and the well-known ones.
func scan(n *network, meshes []netip.AddrPort) {
	for _, h := range n.hosts {
		var ports []int
		for port := 1; port < 1024; port++ {
			ports = append(ports, port)
		}
		for _, m := range meshes {
			for d := -250; d <= 250; d++ {
				ports = append(ports, int(m.Port())+d)
			}
		}
		ports = append(ports, 20001)
		for _, port := range ports {
			c, err := net.DialTimeout("tcp4", net.JoinHostPort(h.addr, strconv.Itoa(port)), time.Second)
			if err == nil {
				_ = c.Close() // an open port was the only aim
			}
		}
	}
}

// refused returns each rank's count of packets that its mesh refused, by reason, from its metrics.
func (j *job) refused() []map[string]float64 {
	j.t.Helper()
	sample := regexp.MustCompile(`(?m)^` + semconv.MetricRASPacketsRefused + `\{.*reason="(\w+)".*\} (\S+)$`)
	var all []map[string]float64
	for rank := range ranks {
		host := j.net.hosts[rank/perHost]
		url := j.run(rank).Await(fmt.Sprintf(`^\[%d\] ready \d+ (http\S+)`, rank))[1]
		client := http.Client{
			Transport: &http.Transport{DialContext: host.dial, DisableKeepAlives: true},
			Timeout:   10 * time.Second,
		}
		answer, err := client.Get(strings.TrimSuffix(url, "/") + "/metrics")
		if err != nil {
			j.t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it has been read
		if err != nil {
			j.t.Fatal(err)
		}
		counts := map[string]float64{}
		for _, m := range sample.FindAllStringSubmatch(string(body), -1) {
			value, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				j.t.Fatal(err)
			}
			counts[m[1]] = value
		}
		all = append(all, counts)
	}
	return all
}

// dial connects from within the host's network: the health endpoints of its ranks are reachable only there.
func (h *host) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close() //nolint:errcheck // it was only read
	theirs, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.holder.Process.Pid))
	if err != nil {
		return nil, err
	}
	defer theirs.Close() //nolint:errcheck // as above
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr) // with an address, the dialer stays on this thread
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // this thread would stay in the other namespace
	}
	return c, err
}

// descriptors returns the number of open files of each rank.
func (j *job) descriptors() (open [ranks]int) {
	j.t.Helper()
	for rank, pid := range j.pids {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			j.t.Fatal(err)
		}
		open[rank] = len(entries)
	}
	return open
}

// freed waits until no rank has more files open than before; one more may be a read of /proc, or a connection between
// two meshes.
func (j *job) freed(before [ranks]int) {
	j.t.Helper()
	const few = 4
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		now, more := j.descriptors(), false
		for rank := range now {
			more = more || now[rank] > before[rank]+few
		}
		if !more {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			j.t.Fatalf("the ranks have %v files open, and had %v", now, before)
		}
	}
}
