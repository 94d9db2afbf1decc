package attach_test

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// call is a line of a capture: a callback, or a public NCCL call.
type call struct {
	Prof, API           string
	Ctx, H, Parent      string
	ParentGroup         string `json:"parent_group"`
	CommID              string `json:"comm_id"`
	Type                uint64
	Rank, Nodes, NRanks int
	Func                string
	DType               any
	Count, Seq          uint64
	Root, Peer, Send    int
	PTimer              uint64
	State               int
	Arg                 uint64
	Enter               int
	Comm, NewComm       string
}

// capture reads the calls of a rank in the captured job.
func capture(t testing.TB, rank int) []call {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("testdata/profiler/rank%d.jsonl.gz", rank))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	var calls []call
	for d := json.NewDecoder(z); ; {
		var c call
		if err := d.Decode(&c); err == io.EOF {
			return calls
		} else if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
}

// Types of events, with NCCL's numbers.
const (
	group    = 1 << 0
	coll     = 1 << 1
	p2p      = 1 << 2
	proxyOp  = 1 << 3
	kernelCh = 1 << 6
	groupAPI = 1 << 8
	collAPI  = 1 << 9
	p2pAPI   = 1 << 10
)

// script returns a capture as a script for the driver: the calls that NCCL would have made with that version.
func script(calls []call, version int, before string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d\n%s", version, before)
	known := []uint64{0, 0x3f, 0x3f, 0xff, 0xff, 0xfff, 0x7fff, 0xffff}[version]
	numbers := map[string]int{"(nil)": 0, "": 0}
	number := func(name string) int {
		if _, ok := numbers[name]; !ok {
			numbers[name] = len(numbers)
		}
		return numbers[name]
	}
	hashes := map[string]string{}
	left := map[string]bool{}
	for _, c := range calls {
		switch c.Prof {
		case "init":
			hashes[c.Ctx] = c.CommID
			fmt.Fprintf(&b, "init %d %s %d %d %d -\n", number(c.Ctx), c.CommID, c.Nodes, c.NRanks, c.Rank)
		case "start":
			if left[c.H] = c.Type&known == 0; left[c.H] {
				continue
			}
			function, dtype := c.Func, fmt.Sprint(c.DType)
			if function == "" {
				function, dtype = "-", "-"
			}
			rank := c.Rank
			if version <= 3 && c.Type&(coll|p2p) != 0 { // in these versions the real rank is in the descriptor
				rank = rankOf(calls, c.Ctx)
			}
			fmt.Fprintf(&b, "start %d %d %d %d %d %d %s %d %s %d %d 0 %d %s -\n", number(c.Ctx), number(c.H), c.Type,
				number(c.Parent), number(c.ParentGroup), rank, function, c.Count, dtype, c.Root|c.Send, c.Peer,
				c.Seq|c.PTimer, hashes[c.Ctx])
		case "stop":
			if !left[c.H] {
				fmt.Fprintf(&b, "stop %d\n", number(c.H))
			}
		case "state":
			if !left[c.H] && (version >= 4 || c.State >= 8 && c.State <= 18) {
				fmt.Fprintf(&b, "state %d %d %d\n", number(c.H), c.State, c.Arg)
			}
		case "finalize":
			fmt.Fprintf(&b, "finalize %d\n", number(c.Ctx))
		}
	}
	return b.String()
}

// rankOf returns the rank in a context's communicator.
func rankOf(calls []call, ctx string) int {
	for _, c := range calls {
		if c.Prof == "init" && c.Ctx == ctx {
			return c.Rank
		}
	}
	return -1
}

// happened returns what a rank did, from its public NCCL calls, as far as a plug-in of that version can know it.
func happened(calls []call, version int) []string {
	functions := map[string]lifecycle.Call{
		"ncclAllReduce": lifecycle.CallAllReduce, "ncclAllGather": lifecycle.CallAllGather,
		"ncclReduceScatter": lifecycle.CallReduceScatter, "ncclBroadcast": lifecycle.CallBroadcast,
		"ncclSend": lifecycle.CallSend, "ncclRecv": lifecycle.CallRecv,
	}
	var made call // the last call
	comms := map[string]tape.CommInfo{}
	numbers := map[string]uint64{}
	var operations []string
	for _, c := range calls {
		if c.Prof == "init" {
			made = c
		}
		comm := c.Comm
		if c.API == "ncclCommSplit" {
			comm = c.NewComm
		}
		if (c.API == "ncclCommInitRankConfig" || c.API == "ncclCommSplit") && c.Enter == 0 && comm != "(nil)" {
			hash, _ := strconv.ParseUint(made.CommID, 16, 64)
			info := tape.CommInfo{Rank: made.Rank, Size: made.NRanks}
			binary.LittleEndian.PutUint64(info.ID[:], hash)
			if version <= 3 {
				info.Size = -1
			}
			comms[comm] = info
		}
		function, ok := functions[c.API]
		if !ok || c.Enter != 0 {
			continue
		}
		info, counter := comms[c.Comm], c.Comm
		sig := tape.Signature{Call: function, DataType: uint8(kernels.Float32), Peer: -1, Bytes: 4 * c.Count}
		if function == lifecycle.CallAllGather || function == lifecycle.CallReduceScatter {
			sig.Bytes *= uint64(max(info.Size, 1))
		}
		if function == lifecycle.CallBroadcast {
			sig.Peer = int32(c.Root)
		}
		if !function.IsCollective() {
			sig.Peer = int32(c.Peer)
			counter = fmt.Sprint(c.Comm, function, c.Peer)
		}
		if version <= 4 && (function == lifecycle.CallAllGather || function == lifecycle.CallBroadcast) {
			sig.DataType = uint8(kernels.Int8)
		}
		numbers[counter]++
		operations = append(operations, describe(info, numbers[counter], sig))
	}
	return operations
}

// unordered sorts the messages of each group, as NCCL enqueues them in an order of its own.
func unordered(operations []string) []string {
	message := func(o string) bool { return strings.Contains(o, ": send ") || strings.Contains(o, ": recv ") }
	for i := 0; i < len(operations); i++ {
		end := i
		for end < len(operations) && message(operations[end]) {
			end++
		}
		slices.Sort(operations[i:end])
		i = max(i, end-1)
	}
	return operations
}

// testReplay replays the callbacks of NCCL 2.28.9 in a job of four ranks, with the version of the capture and with all
// others, and compares the tape with the calls of the ranks. It does so with all events, and with only those in the
// mask.
func testReplay(t *testing.T, program string) {
	for rank := range 4 {
		calls := capture(t, rank)
		for _, version := range versions {
			for _, filter := range []string{"", "filter 1\n"} {
				t.Run(fmt.Sprintf("rank=%d/v%d/%s", rank, version, strings.TrimSpace(filter)), func(t *testing.T) {
					want := happened(calls, version)
					if len(want) != 23 {
						t.Fatalf("the capture has %d operations; want 23", len(want))
					}
					printed, got := drive(t, program, script(calls, version, filter))
					if diff := cmp.Diff(unordered(want), unordered(got)); diff != "" {
						t.Errorf("the tape is not what happened (-want +got):\n%s", diff)
					}
					if odd := counts(printed); odd != "" {
						t.Errorf("odd: %s", odd)
					}
				})
			}
		}
	}
}

// testInterposed replays a rank of whose three communicators interposition sees two: the plug-in writes no operations
// of these.
func testInterposed(t *testing.T, program string) {
	calls := capture(t, 1)
	before := "expect 1 4\nexpect -1 -1\n"
	printed, got := drive(t, program, script(calls, 5, before))
	var want []string
	last := ""
	for _, c := range calls {
		if c.Prof == "init" {
			last = c.CommID
		}
	}
	for _, o := range happened(calls, 5) {
		if strings.HasPrefix(o, last) {
			want = append(want, o)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) != 1 {
		t.Errorf("the tape (-want +got):\n%s", diff)
	}
	for _, claimed := range []string{"claimed 0 hash=d9aefef25e501cbd nodes=2", "claimed 1 hash="} {
		if !strings.Contains(printed, claimed) {
			t.Errorf("the driver printed no %q:\n%s", claimed, printed)
		}
	}
}
