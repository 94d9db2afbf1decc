package cuda

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/carillon-rt/carillon/kernels"
)

// Limits of the kernels, as in args.h.
const (
	MaxRanks    = 8   // of a communicator
	MaxBlocks   = 96  // of a grid
	MaxThreads  = 512 // of a block
	MaxMessages = 64  // of an exchange

	// StateBytes is the size of a rank's state, a multiple of 128. At Ended it has the Words of MaxBlocks blocks, in
	// which launches that don't tell the host record that they are done.
	StateBytes = Ended + MaxBlocks*32
	Ended      = (MaxBlocks*16 + 64 + lanes*8 + MaxBlocks*4 + 127) / 128 * 128

	mailboxes   = 2 // one for each Format
	maxChannels = 48
	fifos       = 3 // FIFOs of a channel, from each other rank
	slots       = 4 // slots of a FIFO
	slice       = 8192
	lanes       = maxChannels * fifos * (MaxRanks - 1)
	closings    = MaxRanks * 8
	flags       = closings + MaxRanks*4
	entries     = (flags + lanes*slots*4 + lanes*4 + MaxBlocks*MaxRanks*4 + 127) / 128 * 128
	control     = entries + 2*MaxBlocks*MaxRanks*NumBuffers*vector
)

// Args is the parameter of kernels whose data comes with its flags, and the beginning of the other kernels' parameters,
// as the GPU gets it. Addresses are valid on this rank's GPU.
type Args struct {
	Rank, Ranks uint32
	Reduction   uint16 // a kernels.Reduction
	Tells       uint16 // where the kernel records that it is done: 1 in Words, 0 in the state, at Ended
	Signature   uint32 // 1 to 255: the collective's signature, the same on all ranks; 0 for messages

	// SendTo and RecvFrom are sets of ranks, with rank 0 as the lowest bit. This rank is in both if it keeps what it
	// sends to itself. For reductions, RecvFrom is 0 if this rank gets no result, and for Reduce, SendTo has the ranks
	// that get one.
	SendTo, RecvFrom uint32

	Number    uint32 // number of the launch, for the Words
	Operation uint32 // 0, or for the Words if the launch is captured: then the GPU numbers the launches by graphs

	Bytes      uint64 // from one rank to another; for an all-reduce or a reduce, the whole buffer
	State      uint64 // this rank's StateBytes in GPU memory, initially zero
	Half       uint64 // bytes of half a mailbox, a multiple of HalfUnit, the same on all ranks
	Words      uint64 // MaxBlocks Words in host memory, behind the rank's Word; may be 0 unless Tells is 1
	Send, Recv uint64 // this rank's buffers; multiples of an element's size

	// SendStride is the distance in bytes between the data for one rank and for the next, 0 if all get the same;
	// RecvStride is the same for received data.
	SendStride, RecvStride uint64

	Window   [MaxRanks]uint64 // entry k: window of rank (Rank + k) mod Ranks, WindowBytes, initially zero, 128-aligned
	Abort    uint64           // a uint32 in host memory that becomes nonzero when the communicator is aborted, or 0
	Factor   float64          // PreMulSum's factor for this rank's contribution
	Slot     uint32           // bytes of a FIFO's slot, a multiple of 16, the same on all ranks
	Channels uint32           // see Channels
}

// WindowBytes is the size of a rank's window: two halves of each mailbox, control words, and the slots of FIFOs.
func WindowBytes(ranks, half, slot int) int {
	return 2*mailboxes*half + control + maxChannels*fifos*max(ranks-1, 1)*slots*slot
}

// Closing is the offset in a rank's window of a uint32 that is nonzero once another rank has closed its end of the
// communicator. All that the other rank has sent must have arrived before it is set. Kernels that wait for that rank
// give up.
func Closing(half, rank int) int { return 2*mailboxes*half + closings + rank*4 }

// SlotBytes is the size of a slot if all slots together may take the given number of bytes: at least 16.
func SlotBytes(ranks, bytes int) int {
	return max(16, bytes/(maxChannels*fifos*max(ranks-1, 1)*slots)/128*128)
}

// A Buffer is one of a call's buffers.
type Buffer uint8

// The buffers.
const (
	SendBuffer Buffer = iota
	RecvBuffer

	// NumBuffers is the number of buffers.
	NumBuffers = int(RecvBuffer) + 1
)

// Reach says where the GPUs of other ranks access this rank's buffers. The kernel finds out whether each rank can
// access all buffers that the call needs; if so, it stages nothing in FIFOs.
type Reach struct {
	// At has the addresses: entry k is the address for rank (Rank + k) mod Ranks, so entry 0 is this rank's. All
	// entries of a buffer are 0 unless all ranks can access it.
	At    [NumBuffers][MaxRanks]uint64
	Needs uint32 // a set of buffers, the same on all ranks; if 0, data is staged

	// Pushes is 1 if the ranks of an all-reduce write their data through FIFOs to the ranks that reduce it, instead of
	// letting those read it: over NVLink that is faster for large messages. It is the same on all ranks. A
	// reduce-scatter that pushes stages everything.
	Pushes uint32
}

// Need adds a buffer to those that a call needs.
func (r *Reach) Need(b Buffer) { r.Needs |= 1 << b }

// ReduceArgs is the parameter of Reduce, and the beginning of ExchangeArgs.
type ReduceArgs struct {
	Args
	Reach Reach
}

// ExchangeArgs is the parameter of Exchange, with ordered lists of messages. List k has the messages to rank (Rank + k)
// mod Ranks, and list MaxRanks + k those from it. List l is Messages[First[l]:First[l+1]].
type ExchangeArgs struct {
	ReduceArgs
	First    [2*MaxRanks + 1]uint32
	_        uint32
	Messages [MaxMessages]Message
}

// SetMessages sets the messages to and from each rank, in order, and reports whether there is room for them.
func (e *ExchangeArgs) SetMessages(sends, receives [][]Message) bool {
	n := 0
	for side, lists := range [][][]Message{sends, receives} {
		for k := range MaxRanks {
			e.First[side*MaxRanks+k] = uint32(n)
			if k >= int(e.Ranks) {
				continue
			}
			list := lists[(int(e.Rank)+k)%int(e.Ranks)]
			if len(list) > len(e.Messages)-n {
				return false
			}
			n += copy(e.Messages[n:], list)
		}
	}
	e.First[2*MaxRanks] = uint32(n)
	return true
}

// Message is one buffer of an exchange.
type Message struct{ At, bytes uint64 }

// NewMessage makes a message of the given size at an address, with a signature (1 to 255) that is the same at both
// ends.
func NewMessage(at uint64, bytes int, signature uint8) Message {
	return Message{at, uint64(bytes)<<8 | uint64(signature)}
}

// Words are written by one block of a rank into host memory, each 16 bytes at once. The rank's Word, in front of the
// first block's Words, says why the first kernel that gave up did so.
type Words struct {
	Done  Word // the last launch that tells in which the block was done
	Waits Word // what the block last waited for, if that took long; its phase becomes Done when it continues
}

// Word says what a block does.
type Word struct {
	Number    uint32 // Args.Number, or that of the launch by a graph
	Phase     Phase
	Peer      uint8  // the rank that the block waits for
	Blocks    uint16 // number of blocks of the grid
	Operation uint32 // Args.Operation
	Replayed  uint32 // number of collectives launched by graphs, including this one; the same on all ranks
}

// Phase is what a block waits for. Among the blocks of a launch, the highest phase is the most informative.
type Phase uint8

// The phases.
const (
	Done     Phase = iota // nothing
	Room                  // a rank to take the data sent to it
	Results               // a rank's share of the result
	Data                  // a rank's data
	Mismatch              // nothing: the rank makes another call, and the kernel has given up
	Closed                // nothing: the rank has closed its end, and the kernel has given up
	Aborted               // nothing: the communicator was aborted, and the kernel has given up
)

// Kernel names a family of kernels.
type Kernel uint8

// The families. Kernels whose data comes with its flags exist in two formats: LL for small messages, LL128 for larger
// ones.
const (
	Copy         Kernel = iota // all-gather, all-to-all, broadcast, gather, scatter, barrier, in LL
	CopyLL128                  // the same in LL128
	OneShot                    // all-reduce, reduce, reduce-scatter, in LL; every rank sends all its data
	OneShotLL128               // the same in LL128
	TwoShot                    // all-reduce, in LL; each rank reduces a share and sends the result to all
	TwoShotLL128               // the same in LL128
	Exchange                   // FIFOs or directly: messages, and with these the operations of Copy
	Reduce                     // FIFOs or directly: all-reduce, reduce, reduce-scatter; each rank reduces a share

	// NumKernels is the number of families.
	NumKernels = int(Reduce) + 1
)

// A format is the layout of data and flags in a mailbox: unit is the size of a unit in bytes, payload how many of them
// are data, and threads how many threads send a unit together.
type format struct{ unit, payload, threads int }

// format returns the format of a kernel whose data comes with its flags.
func (k Kernel) format() format {
	switch k {
	case CopyLL128, OneShotLL128, TwoShotLL128:
		return format{unit: 512, payload: 480, threads: warp}
	default:
		return format{unit: vector, payload: 8, threads: 1}
	}
}

// Function returns the name of the function for a data type (irrelevant for kernels that only copy) and a number of
// ranks.
func Function(k Kernel, dt kernels.DataType, ranks int) string {
	name := "carillon_" + [...]string{
		Copy: "copy", CopyLL128: "copy_ll128", Exchange: "exchange", Reduce: "reduce",
		OneShot: "one_shot", OneShotLL128: "one_shot_ll128", TwoShot: "two_shot", TwoShotLL128: "two_shot_ll128",
	}[k]
	if k != Copy && k != CopyLL128 && k != Exchange {
		name += "_" + dt.String()
	}
	if slices.Contains(specialized(k), ranks) {
		name += fmt.Sprint("_", ranks)
	}
	return name
}

// specialized returns the numbers of ranks for which a kernel has separate functions, besides the general one.
func specialized(k Kernel) []int {
	switch k {
	case Copy, OneShot:
		return []int{2, 4, 8}
	case CopyLL128, OneShotLL128:
		return []int{2}
	default:
		return nil
	}
}

// functions returns all functions of a kernel for a data type.
func functions(k Kernel, dt kernels.DataType) []string {
	names := []string{Function(k, dt, 0)}
	for _, ranks := range specialized(k) {
		names = append(names, Function(k, dt, ranks))
	}
	return names
}

// units returns how many units some bytes take: at least one, since every rank must hear from every other one.
func (f format) units(bytes int) int { return max(1, share(f.payload, bytes)) }

// HalfUnit is the unit of the size of half a mailbox.
const HalfUnit = 512

// HalfFor returns how many bytes a collective whose data comes with its flags needs in half a mailbox.
func HalfFor(k Kernel, ranks, bytes int) int {
	f := k.format()
	if k == TwoShot || k == TwoShotLL128 {
		return 2 * ranks * share(ranks, f.units(bytes)) * f.unit
	}
	return ranks * f.units(bytes) * f.unit
}

func share(ranks, n int) int { return (n + ranks - 1) / ranks }

// roles returns how many blocks a channel has.
func roles(k Kernel, ranks int) int {
	if k == Reduce {
		return 3
	}
	return 2*ranks - 1
}

// MinBlocks returns how many blocks of a rank must be able to run at once.
func MinBlocks(ranks int) int { return max(roles(Reduce, ranks), roles(Exchange, ranks)) }

// Channels returns how many channels a kernel with FIFOs may use if a grid may have the given number of blocks.
func Channels(k Kernel, ranks, blocks int) int { return min(maxChannels, blocks/roles(k, ranks)) }

// A Grid is the number of blocks of a launch and of threads of a block. It is the same on all ranks where that is
// necessary.
type Grid struct{ Blocks, Threads int }

// GridFor returns the smallest useful grid for an operation with a.Slot and a.Channels. bytes is Args.Bytes, or the
// size of the largest message of an exchange; limit is the largest grid.
func GridFor(k Kernel, a *Args, bytes int, limit Grid) Grid {
	ranks := int(a.Ranks)
	f := k.format()
	work := f.units(bytes)
	switch k {
	case Copy, CopyLL128, OneShot, OneShotLL128:
	case TwoShot, TwoShotLL128:
		work = share(ranks, work)
	case Exchange, Reduce:
		if k == Reduce && a.SendStride == 0 {
			bytes = share(vector, share(ranks, bytes)) * vector
		}
		channels := min(int(a.Channels), max(1, share(min(slice, int(a.Slot)), bytes)))
		vectors := share(vector, min(int(a.Slot), share(channels, bytes)))
		workers := max(warp, roundUp(vectors, warp))
		return Grid{channels * roles(k, ranks), min(limit.Threads, warp+workers)} // plus the leading warp
	}
	work *= f.threads
	threads := min(limit.Threads, max(fewThreads, roundUp(share(limit.Blocks, work), warp)), roundUp(work, warp))
	return Grid{min(limit.Blocks, (work+threads-1)/threads), threads}
}

// fewThreads is the number of threads per block for a small operation that has several blocks: data moves faster
// through several multiprocessors.
const fewThreads = 128

func roundUp(n, unit int) int { return share(unit, n) * unit }

const (
	warp   = 32 // threads that run together
	vector = 16 // bytes that a thread loads or stores at once
)

//go:embed *.gz
var images embed.FS

// An Image is a module to load.
type Image struct {
	Name      string
	Code      []byte // a cubin, or PTX with a terminating zero byte; read-only
	Functions []string

	// StartsEarly says that the kernels themselves wait for earlier work on their stream, so they may be started while
	// that ends.
	StartsEarly bool
}

// modules returns the modules of the sources, without their code.
func modules() []Image {
	packets := Image{Name: "packets", Functions: functions(Copy, 0)}
	lines := Image{Name: "lines", Functions: functions(CopyLL128, 0)}
	fifos := Image{Name: "fifos", Functions: functions(Exchange, 0)}
	for dt := kernels.Int8; dt.Valid(); dt++ {
		packets.Functions = append(packets.Functions, functions(OneShot, dt)...)
		packets.Functions = append(packets.Functions, functions(TwoShot, dt)...)
		lines.Functions = append(lines.Functions, functions(OneShotLL128, dt)...)
		lines.Functions = append(lines.Functions, functions(TwoShotLL128, dt)...)
		fifos.Functions = append(fifos.Functions, functions(Reduce, dt)...)
	}
	return []Image{packets, lines, fifos}
}

// Images returns the modules to load, which together have every function: cubins if there are some for the GPU's
// compute capability, and otherwise, or if ptx is set, PTX. A driver may be too old for a cubin; it accepts PTX, and
// compiles it for some seconds.
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
		m.StartsEarly = major >= 9
		if m.StartsEarly && kind == "ptx" {
			m.Code = forSM90(m.Code)
		}
	}
	return all, nil
}

// forSM90 returns PTX for sm_90 and newer, with the comments from platform.h replaced by the instructions that they
// name.
func forSM90(ptx []byte) []byte {
	return []byte(strings.NewReplacer(
		".version 6.2", ".version 7.8", ".target sm_70", ".target sm_90", "// griddepcontrol", "griddepcontrol",
	).Replace(string(ptx)))
}

// read returns an image. It decompresses each image once for all GPUs of the process, which takes tens of milliseconds.
func read(name string) ([]byte, error) {
	once, _ := decompressed.LoadOrStore(name, sync.OnceValues(func() ([]byte, error) { return decompress(name) }))
	return once.(func() ([]byte, error))()
}

var decompressed sync.Map // by name

// decompress returns an image followed by the zero that terminates PTX.
func decompress(name string) ([]byte, error) {
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
