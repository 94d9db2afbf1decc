package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/etcd"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
	"github.com/carillon-rt/carillon/tests/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

var quiet = slog.New(slog.DiscardHandler)

// start starts an etcd at an address, with TLS if flags name a certificate, until the test ends. (etcd can't be asked
// for its port.)
func start(t *testing.T, addr string, flags ...string) *e2e.Job {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Fatal("there is no etcd: apt-get install etcd-server (without starting its service) brings it")
	}
	peers, clients := "http://"+e2e.FreeAddr(t), "http://"+addr
	if slices.Contains(flags, "--cert-file") {
		clients = "https://" + addr
	}
	run := e2e.Start(t, nil, program, append([]string{
		"--data-dir", t.TempDir(), "--listen-client-urls", clients,
		"--advertise-client-urls", clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default=" + peers, "--unsafe-no-fsync",
	}, flags...)...)
	run.Await(`ready to serve client requests|serving client (requests|traffic)|serving insecure client requests`)
	return run
}

// left returns the keys that a job leaves behind.
func left(t *testing.T, addr, prefix string) []string {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]string, len(got.Kvs))
	for i, kv := range got.Kvs {
		keys[i] = string(kv.Key)
	}
	return keys
}

func newID(t *testing.T) lifecycle.UniqueID {
	t.Helper()
	id, err := lifecycle.NewUniqueID("")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// rank returns a rendezvous for one more rank of an id.
func rank(t *testing.T, addr string, id lifecycle.UniqueID) *etcd.Rendezvous {
	t.Helper()
	return dial(t, "etcd://"+addr+"/test", id)
}

// dial is rank with a whole URL.
func dial(t *testing.T, url string, id lifecycle.UniqueID) *etcd.Rendezvous {
	t.Helper()
	config, err := etcd.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	r, err := etcd.New(config, id, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestConformance(t *testing.T) {
	addr := e2e.FreeAddr(t)
	start(t, addr)
	rendezvoustest.Run(t, func(t *testing.T, _ int) rendezvoustest.Site {
		id := newID(t)
		return rendezvoustest.Site{
			Rank: func() rendezvous.Rendezvous { return rank(t, addr, id) },
			Waiting: func(string) int { // each rank has written one key, if another rank is there to read it
				under := map[string]int{}
				prefix := "test/" + lifecycle.RootCommID(id).String() + "/"
				for _, key := range left(t, addr, prefix) { // all at one moment
					kind, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
					under[kind]++
				}
				if under["gen"] == 0 {
					return under["rank"]
				}
				return under["event"]
			},
		}
	})
	if keys := left(t, addr, "test/"); len(keys) > 0 {
		t.Errorf("ranks that closed left %q", keys)
	}
}

// TestTwoThatAreRank0: the second one begins a generation of its own, which both are in then.
func TestTwoThatAreRank0(t *testing.T) {
	addr := e2e.FreeAddr(t)
	start(t, addr)
	id := newID(t)
	ended := make(chan error, 2)
	exchange := func() {
		_, err := rank(t, addr, id).Exchange(rendezvoustest.Within(t), "cards", 0, 2, nil)
		ended <- err
	}
	go exchange()
	rendezvoustest.Await(t, "the first waits", func() bool { return joined(t, addr, "test/") == 1 })
	go exchange()
	for range 2 {
		var conflict *rendezvous.ConflictError
		if err := <-ended; !errors.As(err, &conflict) || !strings.Contains(err.Error(), "rank 0 is claimed twice") {
			t.Error(err)
		}
	}
}

// joined returns how many ranks have announced themselves for an exchange, and are alive.
func joined(t *testing.T, addr, prefix string) (n int) {
	t.Helper()
	for _, key := range left(t, addr, prefix) {
		if strings.Contains(key, "/event/") {
			n++
		}
	}
	return n
}

// TestEtcdThatComesLate: etcd starts late, or never.
func TestEtcdThatComesLate(t *testing.T) {
	addr := e2e.FreeAddr(t)
	id := newID(t)
	brief, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := rank(t, addr, id).Exchange(brief, "cards", 1, 2, nil)
	var unreached *rendezvous.UnreachableError
	if !errors.As(err, &unreached) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), addr) {
		t.Errorf("no etcd: %v", err)
	}
	done := make(chan error, 2)
	for n := range 2 {
		go func() {
			_, err := rank(t, addr, id).Exchange(rendezvoustest.Within(t), "cards", n, 2, nil)
			done <- err
		}()
	}
	start(t, addr)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestJobOfTwoMachines: two launchers know only the etcd, and not each other's addresses.
func TestJobOfTwoMachines(t *testing.T) {
	addr := e2e.FreeAddr(t)
	start(t, addr)
	checkJob(t, append(slices.Clone(jobEnv), "CARILLON_RENDEZVOUS=etcd://"+addr), "meeting at etcd://"+addr)
	if keys := left(t, addr, "carillon/"); len(keys) > 0 {
		t.Errorf("the job left %q", keys)
	}
}

// jobEnv has the secret of a job of several machines.
var jobEnv = []string{"CARILLON_JOB_SECRET=0123456789abcdef0123456789abcdef"}

// checkJob runs a job of two machines, whose launcher must say where its ranks meet.
func checkJob(t *testing.T, env []string, says string) {
	t.Helper()
	var machines []*e2e.Job
	for n := range 2 {
		machines = append(machines,
			e2e.Start(t, append(slices.Clone(env), fmt.Sprint("CARILLON_HOSTID=machine-", n)), "carillon", "run",
				"-n", "2", "--nnodes", "2", "--node-rank", fmt.Sprint(n), "--tape-dir", t.TempDir(), "--", "digits",
				"-epochs", "2"))
	}
	for n, m := range machines {
		if code := m.ExitCode(); code != 0 {
			t.Errorf("machine %d: exit code %d", n, code)
		}
	}
	out := machines[0].Output()
	if !strings.Contains(out, "4 replicas, bit by bit the same") || !strings.Contains(out, says) {
		t.Errorf("it printed\n%s", out)
	}
}

// startRank starts a rank of a job without a launcher.
func startRank(t *testing.T, addr string, size, n int) (run *e2e.Job, pid int) {
	t.Helper()
	run = e2e.Start(t, []string{
		"CARILLON_RENDEZVOUS=etcd://" + addr, "CARILLON_JOB=mine", fmt.Sprint("WORLD_SIZE=", size),
		fmt.Sprint("RANK=", n), "CARILLON_TAPE_DIR=" + t.TempDir(),
	}, "sh", "-c", "echo pid $$; exec digits -epochs 2")
	return run, run.AwaitPID(`^pid (\d+)$`)
}

// TestRankThatDies: a rank dies while it waits; the others learn it from etcd when the rank's lease has expired.
func TestRankThatDies(t *testing.T) {
	addr := e2e.FreeAddr(t)
	start(t, addr)
	ranks := make([]*e2e.Job, 2)
	var victim int
	for n := range ranks {
		ranks[n], victim = startRank(t, addr, 3, n)
	}
	rendezvoustest.Await(t, "both wait", func() bool { return joined(t, addr, "carillon/") == 2 })
	e2e.Kill(t, victim, syscall.SIGKILL)
	ranks[0].Await(`etcd got no keep-alive for 5s`)
	if code := ranks[0].ExitCode(); code == 0 {
		t.Error("rank 0 ended well without rank 1")
	}
}

// TestRanksThatComeAgain: the keys of a rank that was killed don't hinder ranks that are started again.
func TestRanksThatComeAgain(t *testing.T) {
	addr := e2e.FreeAddr(t)
	start(t, addr)
	_, pid := startRank(t, addr, 2, 0)
	rendezvoustest.Await(t, "rank 0 waits", func() bool { return joined(t, addr, "carillon/") == 1 })
	e2e.Kill(t, pid, syscall.SIGKILL)
	for n := range 2 {
		run, _ := startRank(t, addr, 2, n)
		defer func() {
			if code := run.ExitCode(); code != 0 {
				t.Errorf("rank %d: exit code %d", n, code)
			}
		}()
	}
}
