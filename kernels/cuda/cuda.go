package cuda

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"

	"github.com/carillon-rt/carillon/kernels"
)

// Limits of the kernels, as in args.h.
const (
	MaxRanks   = 8   // of a communicator
	MaxBlocks  = 64  // of a grid
	MaxThreads = 512 // of a block

	payload = 8  // bytes of data in a packet
	packet  = 16 // bytes of a packet
	flags   = 2 * MaxBlocks * MaxRanks * 4
)

// Args is the parameter of every kernel, as the GPU gets it. Addresses are those at which this rank's GPU reaches them.
type Args struct {
	Rank, Ranks uint32
	Reduction   uint32 // a kernels.Reduction
	Signature   uint32 // 1 to 255: of the call, the same on all ranks

	// SendTo and RecvFrom are sets of ranks, rank 0 being the lowest bit. This rank is in both if it keeps what it
	// sends itself. For reductions in packets, RecvFrom is 0 if this rank gets no result; for direct ones, SendTo are
	// the ranks that get this rank's share of it.
	SendTo, RecvFrom uint32

	// Bytes go from one rank to another. Of an all-reduce in packets they are the whole buffer, and of a direct
	// reduction this rank's share.
	Bytes      uint64
	Epochs     uint64 // MaxBlocks uint32 in the GPU's memory, this rank's, zero at first
	Half       uint64 // bytes of half a mailbox, the same on all ranks
	Words      uint64 // MaxBlocks Words in host memory, or 0
	Send, Recv uint64 // this rank's buffers, for packets; multiples of an element's size

	// SendStride is the bytes between what goes to a rank and what goes to the next, 0 if all get the same; RecvStride
	// is the same for what comes. In a direct reduction they are the bytes between shares, in and out.
	SendStride, RecvStride uint64

	Mailbox [MaxRanks]uint64 // entry k is rank (Rank + k) mod Ranks's: two halves, zero at first, aligned to 16 bytes
	Abort   uint64           // a uint32 in host memory that is not 0 once the communicator is aborted, or 0
	Factor  float64          // what PreMulSum multiplies this rank's contribution with; packets only
	In, Out [MaxRanks]uint64 // every rank's buffers, for direct
}

// Words are what block b of a rank has written into host memory, 16 bytes at once each.
type Words struct {
	Done  Word // when it last ended an operation
	Waits Word // what it last waited for, if that took long; Done as its phase when it went on
}

// Word says where a block is.
type Word struct {
	Epoch  uint32
	Phase  Phase
	Peer   uint8  // the rank that is waited for
	Blocks uint16 // of the grid
	Time   uint64 // nanoseconds, by the GPU's clock
}

// Phase is what a block waits in.
type Phase uint8

// The phases.
const (
	Done     Phase = iota // it waits no longer
	Packets               // for a rank's data
	Results               // for a rank's share of the result
	Entry                 // for a rank to enter the operation
	Exit                  // for a rank to have read and written what it has to
	Mismatch              // it has given up: the rank makes another call
	Aborted               // it has given up: the communicator was aborted
)

// Kernel names a family of kernels.
type Kernel uint8

// The families. Those in packets need a mailbox of [HalfFor] bytes, the direct ones the buffers of all ranks.
const (
	Copy    Kernel = iota // packets: all-gather, all-to-all, broadcast, gather, scatter, barrier
	OneShot               // packets: all-reduce, reduce, reduce-scatter; every rank sends all that it has
	TwoShot               // packets: all-reduce; each rank reduces a share and sends the result to all
	Gather                // direct: what Copy does
	Reduce                // direct: all-reduce, reduce, reduce-scatter

	// NumKernels is how many there are.
	NumKernels = int(Reduce) + 1
)

// Function returns the name of the function for a data type (which Copy and Gather have none of) and a number of ranks.
func Function(k Kernel, dt kernels.DataType, ranks int) string {
	switch k {
	case OneShot:
		name := "carillon_one_shot_" + dt.String()
		if ranks == 2 || ranks == 4 || ranks == 8 {
			name += fmt.Sprint("_", ranks)
		}
		return name
	case TwoShot:
		return "carillon_two_shot_" + dt.String()
	case Reduce:
		return "carillon_reduce_" + dt.String()
	case Gather:
		return "carillon_gather"
	default:
		return "carillon_copy"
	}
}

// packets is the number that some bytes take: one at least, since every rank hears from every other one.
func packets(bytes int) int { return max(1, (bytes+payload-1)/payload) }

// Threads returns how many threads have something to do with an operation: there need be no more.
func Threads(k Kernel, ranks, bytes int) int {
	switch k {
	case Copy, OneShot:
		return packets(bytes)
	case TwoShot:
		return (packets(bytes) + ranks - 1) / ranks
	default:
		return max(1, (bytes+packet-1)/packet)
	}
}

// HalfFor returns the bytes that an operation needs in half a mailbox.
func HalfFor(k Kernel, ranks, bytes int) int {
	switch k {
	case Copy, OneShot:
		return flags + ranks*packets(bytes)*packet
	case TwoShot:
		return flags + 2*ranks*Threads(k, ranks, bytes)*packet
	default:
		return flags
	}
}

//go:embed *.ptx.gz *.cubin.gz
var images embed.FS

// An Image is a module to load.
type Image struct {
	Name      string
	Code      []byte // a cubin, or PTX with a zero byte behind it
	Functions []string
}

// modules are those of the sources, without their code.
func modules() []Image {
	packets, direct := Image{Name: "packets"}, Image{Name: "direct"}
	packets.Functions = append(packets.Functions, Function(Copy, 0, 0))
	direct.Functions = append(direct.Functions, Function(Gather, 0, 0))
	for dt := kernels.Int8; dt.Valid(); dt++ {
		for _, ranks := range []int{0, 2, 4, 8} {
			packets.Functions = append(packets.Functions, Function(OneShot, dt, ranks))
		}
		packets.Functions = append(packets.Functions, Function(TwoShot, dt, 0))
		direct.Functions = append(direct.Functions, Function(Reduce, dt, 0))
	}
	return []Image{packets, direct}
}

// Images returns the modules to load, which together have every function: cubins, if there are some for the GPU's
// compute capability, and else, or if ptx is asked for, PTX. A driver may be too old for a cubin; PTX it takes, and
// compiles for some seconds.
func Images(major, minor int, ptx bool) ([]Image, error) {
	all := modules()
	for i := range all {
		m := &all[i]
		kind := fmt.Sprintf("sm_%d%d.cubin", major, minor)
		if _, err := fs.Stat(images, m.Name+"."+kind+".gz"); ptx || err != nil {
			kind = "ptx"
		}
		var err error
		if m.Code, err = read(m.Name + "." + kind + ".gz"); err != nil {
			return nil, fmt.Errorf("kernels: %s: %w", m.Name, err)
		}
	}
	return all, nil
}

// read returns an image, and the zero that ends PTX behind it.
func read(name string) ([]byte, error) {
	f, err := images.Open(name)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	image, err := io.ReadAll(r)
	return append(image, 0), err
}
