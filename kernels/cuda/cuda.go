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

	// StateBytes is the size of a rank's state, and a multiple of 128. At Ended it has Words of MaxBlocks blocks: there
	// launches that don't tell the host say that they are done.
	StateBytes = Ended + MaxBlocks*32
	Ended      = (MaxBlocks*16 + 64 + lanes*8 + MaxBlocks*4 + 127) / 128 * 128

	mailboxes   = 2 // one for each Format
	maxChannels = 48
	fifos       = 3 // of a channel, from each other rank
	slots       = 4 // of a FIFO
	slice       = 8192
	lanes       = maxChannels * fifos * (MaxRanks - 1)
	closings    = MaxRanks * 8
	flags       = closings + MaxRanks*4
	entries     = (flags + lanes*slots*4 + lanes*4 + MaxBlocks*MaxRanks*4 + 127) / 128 * 128
	control     = entries + 2*MaxBlocks*MaxRanks*NumBuffers*vector
)

// Args is the parameter of kernels whose data comes with its flags, and the beginning of others', as the GPU gets it.
// Addresses are those at which this rank's GPU reaches them.
type Args struct {
	Rank, Ranks uint32
	Reduction   uint16 // a kernels.Reduction
	Tells       uint16 // where it says that it is done: 1 in Words, 0 in the state, at Ended
	Signature   uint32 // 1 to 255: of the collective, the same on all ranks; 0 for messages

	// SendTo and RecvFrom are sets of ranks, rank 0 being the lowest bit. This rank is in both if it keeps what it
	// sends itself. For reductions, RecvFrom is 0 if this rank gets no result, and for Reduce SendTo are the ranks that
	// get one.
	SendTo, RecvFrom uint32

	Number    uint32 // of the launch, for the Words
	Operation uint32 // 0; or, if the launch is captured, for the Words: then the GPU numbers the launches by graphs

	Bytes      uint64 // from one rank to another; of an all-reduce or a reduce the whole buffer
	State      uint64 // StateBytes in the GPU's memory, this rank's, zero at first
	Half       uint64 // bytes of half a mailbox, a multiple of HalfUnit, the same on all ranks
	Words      uint64 // MaxBlocks Words in host memory, behind a Word: the rank's; may be 0 unless Tells is 1
	Send, Recv uint64 // this rank's buffers; multiples of an element's size

	// SendStride is the bytes between what goes to a rank and what goes to the next, 0 if all get the same; RecvStride
	// is the same for what comes.
	SendStride, RecvStride uint64

	Window   [MaxRanks]uint64 // entry k is rank (Rank + k) mod Ranks's: WindowBytes, zero at first, aligned to 128
	Abort    uint64           // a uint32 in host memory that is not 0 once the communicator is aborted, or 0
	Factor   float64          // what PreMulSum multiplies this rank's contribution with
	Slot     uint32           // bytes of a FIFO's slot, a multiple of 16, the same on all ranks
	Channels uint32           // see Channels
}

// WindowBytes is the size of a rank's window: two halves of each mailbox, control words, and the slots of FIFOs.
func WindowBytes(ranks, half, slot int) int {
	return 2*mailboxes*half + control + maxChannels*fifos*max(ranks-1, 1)*slots*slot
}

// Closing is where a rank's window says that another one has closed its end of the communicator: a uint32 that is not 0
// then. All that the other one has sent must have arrived before. Kernels that wait for it give up.
func Closing(half, rank int) int { return 2*mailboxes*half + closings + rank*4 }

// SlotBytes is the size of a slot, if all slots together may have so many bytes: 16 at least.
func SlotBytes(ranks, bytes int) int {
	return max(16, bytes/(maxChannels*fifos*max(ranks-1, 1)*slots)/128*128)
}

// A Buffer is one of a call's.
type Buffer uint8

// The buffers.
const (
	SendBuffer Buffer = iota
	RecvBuffer

	// NumBuffers is how many there are.
	NumBuffers = int(RecvBuffer) + 1
)

// Reach is where the GPUs of other ranks reach this rank's buffers. If each reaches what a call needs, the kernel finds
// that out, and stages nothing in FIFOs.
type Reach struct {
	// At says where: entry k is as rank (Rank + k) mod Ranks reaches it, which for 0 is this rank. All entries of a
	// buffer are 0 unless all ranks reach it.
	At    [NumBuffers][MaxRanks]uint64
	Needs uint32 // a set of buffers, the same on all ranks; 0 stages

	// Pushes is 1 if the ranks of an all-reduce write their data to those that reduce it, through FIFOs, instead of
	// having it read: over NVLink that is faster for large messages. It is the same on all ranks. A reduce-scatter that
	// pushes stages all.
	Pushes uint32
}

// Need adds a buffer to what a call needs.
func (r *Reach) Need(b Buffer) { r.Needs |= 1 << b }

// ReduceArgs is the parameter of Reduce, and the beginning of ExchangeArgs.
type ReduceArgs struct {
	Args
	Reach Reach
}

// ExchangeArgs is the parameter of Exchange, with lists of messages, each in its order. List k is what goes to rank
// (Rank + k) mod Ranks, and list MaxRanks + k what comes from there. List l is Messages[First[l]:First[l+1]].
type ExchangeArgs struct {
	ReduceArgs
	First    [2*MaxRanks + 1]uint32
	_        uint32
	Messages [MaxMessages]Message
}

// SetMessages sets the messages to and from each rank, in their order, and reports whether there is room for them.
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

// NewMessage is a message of so many bytes at an address, with a signature (1 to 255) that is the same at both ends.
func NewMessage(at uint64, bytes int, signature uint8) Message {
	return Message{at, uint64(bytes)<<8 | uint64(signature)}
}

// Words are what block b of a rank has written into host memory, 16 bytes at once each. The Word in front of those of
// the first block is the rank's: why the first kernel that has given up did so.
type Words struct {
	Done  Word // when it was last done in a launch that tells
	Waits Word // what it last waited for, if that took long; Done as its phase when it went on
}

// Word says where a block is.
type Word struct {
	Number    uint32 // Args.Number, or that of the launch by a graph
	Phase     Phase
	Peer      uint8  // the rank that is waited for
	Blocks    uint16 // of the grid
	Operation uint32 // Args.Operation
	Replayed  uint32 // collectives that graphs have launched, with this one: the same on all ranks
}

// Phase is what a block waits for. Of the blocks of a launch, the one with the highest phase tells most.
type Phase uint8

// The phases.
const (
	Done     Phase = iota // nothing
	Room                  // a rank to take what was sent to it
	Results               // a rank's share of the result
	Data                  // a rank's data
	Mismatch              // nothing: the rank makes another call, and the kernel has given up
	Closed                // nothing: the rank has closed its end, and the kernel has given up
	Aborted               // nothing: the communicator was aborted, and the kernel has given up
)

// Kernel names a family of kernels.
type Kernel uint8

// The families. Those whose data comes with its flags are in two formats: small messages in LL, larger ones in LL128.
const (
	Copy         Kernel = iota // all-gather, all-to-all, broadcast, gather, scatter, barrier, in LL
	CopyLL128                  // the same in LL128
	OneShot                    // all-reduce, reduce, reduce-scatter, in LL; every rank sends all that it has
	OneShotLL128               // the same in LL128
	TwoShot                    // all-reduce, in LL; each rank reduces a share and sends the result to all
	TwoShotLL128               // the same in LL128
	Exchange                   // FIFOs or directly: messages, and by them what Copy does
	Reduce                     // FIFOs or directly: all-reduce, reduce, reduce-scatter; each rank reduces a share

	// NumKernels is how many there are.
	NumKernels = int(Reduce) + 1
)

// A format is how data and flags lie in a mailbox: in units of so many bytes, of which payload are data, and each of
// which so many threads send together.
type format struct{ unit, payload, threads int }

// format returns that of a kernel whose data comes with its flags.
func (k Kernel) format() format {
	switch k {
	case CopyLL128, OneShotLL128, TwoShotLL128:
		return format{unit: 512, payload: 480, threads: warp}
	default:
		return format{unit: vector, payload: 8, threads: 1}
	}
}

// Function returns the name of the function for a data type (which those that copy have none of) and a number of ranks.
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

// specialized are the numbers of ranks that a kernel has functions of their own for, besides the one for any.
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

// functions are all of a kernel's for a data type.
func functions(k Kernel, dt kernels.DataType) []string {
	names := []string{Function(k, dt, 0)}
	for _, ranks := range specialized(k) {
		names = append(names, Function(k, dt, ranks))
	}
	return names
}

// units is the number that some bytes take: one at least, since every rank hears from every other one.
func (f format) units(bytes int) int { return max(1, share(f.payload, bytes)) }

// HalfUnit is what a half of a mailbox is a multiple of.
const HalfUnit = 512

// HalfFor returns the bytes that a collective whose data comes with its flags needs in half a mailbox.
func HalfFor(k Kernel, ranks, bytes int) int {
	f := k.format()
	if k == TwoShot || k == TwoShotLL128 {
		return 2 * ranks * share(ranks, f.units(bytes)) * f.unit
	}
	return ranks * f.units(bytes) * f.unit
}

func share(ranks, n int) int { return (n + ranks - 1) / ranks }

// roles is how many blocks a channel has.
func roles(k Kernel, ranks int) int {
	if k == Reduce {
		return 3
	}
	return 2*ranks - 1
}

// MinBlocks is how many blocks of a rank must run at once.
func MinBlocks(ranks int) int { return max(roles(Reduce, ranks), roles(Exchange, ranks)) }

// Channels is how many channels a kernel with FIFOs may use, if a grid may have so many blocks.
func Channels(k Kernel, ranks, blocks int) int { return min(maxChannels, blocks/roles(k, ranks)) }

// A Grid is how many blocks of how many threads a launch has. It is the same on all ranks where it must be.
type Grid struct{ Blocks, Threads int }

// GridFor returns the smallest grid that is of use for an operation of a.Slot and a.Channels. Bytes are those of Args,
// or of the largest message of an exchange; limit is the largest grid.
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
		return Grid{channels * roles(k, ranks), min(limit.Threads, warp+workers)} // one more warp leads
	}
	work *= f.threads
	threads := min(limit.Threads, max(fewThreads, roundUp(share(limit.Blocks, work), warp)), roundUp(work, warp))
	return Grid{min(limit.Blocks, (work+threads-1)/threads), threads}
}

// fewThreads are those of a block that a small operation has several blocks of: data moves faster through several
// multiprocessors.
const fewThreads = 128

func roundUp(n, unit int) int { return share(unit, n) * unit }

const (
	warp   = 32 // threads that a GPU runs together
	vector = 16 // bytes that a thread loads or stores at once
)

//go:embed *.gz
var images embed.FS

// An Image is a module to load.
type Image struct {
	Name      string
	Code      []byte // a cubin, or PTX with a zero byte behind it; nobody may change it
	Functions []string

	// StartsEarly tells that the kernels themselves wait for the work before them on their stream, so that they may be
	// started while that ends.
	StartsEarly bool
}

// modules are those of the sources, without their code.
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
		m.StartsEarly = major >= 9
		if m.StartsEarly && kind == "ptx" {
			m.Code = forSM90(m.Code)
		}
	}
	return all, nil
}

// forSM90 returns PTX for sm_90 and newer, in which the comments of platform.h are the instructions that they name.
func forSM90(ptx []byte) []byte {
	return []byte(strings.NewReplacer(
		".version 6.2", ".version 7.8", ".target sm_70", ".target sm_90", "// griddepcontrol", "griddepcontrol",
	).Replace(string(ptx)))
}

// read returns an image. It is decompressed once, which takes tens of milliseconds, for all GPUs of the process.
func read(name string) ([]byte, error) {
	once, _ := decompressed.LoadOrStore(name, sync.OnceValues(func() ([]byte, error) { return decompress(name) }))
	return once.(func() ([]byte, error))()
}

var decompressed sync.Map // by name

// decompress returns an image, and the zero that ends PTX behind it.
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
