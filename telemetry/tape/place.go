package tape

import "github.com/carillon-rt/carillon/lifecycle/words"

// Place is where a rank is among the ranks of its communicator, and how it reaches ranks on other nodes. The zero Place
// is unknown: the ranks have not met yet, or the engine does not tell.
type Place struct {
	Node        int `json:"node"`        // of the rank, from 0; nodes are numbered in the order of their lowest ranks
	Local       int `json:"rail"`        // its index among the ranks of its node: the rail that it is on
	Locals      int `json:"node_ranks"`  // how many ranks the node has
	Connections int `json:"connections"` // over the network, with ranks of other nodes as a rule
	PXN         PXN `json:"pxn"`
}

// IsZero tells whether the place is unknown.
func (p Place) IsZero() bool { return p.PXN == PXNUnknown }

// PXN says whether ranks send to other nodes through the rank of their own node that is on the receiver's rail, or why
// they don't. PXNUnknown is that of an unknown Place.
type PXN uint8

// The values of PXN.
const (
	PXNUnknown   PXN = iota
	PXNOn            // they do
	PXNOneNode       // there is no other node
	PXNAlone         // each rank is alone on its node
	PXNDisabled      // a rank has set NCCL_PXN_DISABLE
	PXNNoMemory      // a rank has no memory that it could share with others of its node
	PXNStrangers     // ranks of a node are of different users or pid namespaces
	numPXN
)

var pxnNames = [numPXN]string{
	"unknown", "on", "one_node", "one_rank_a_node", "disabled", "no_shared_memory", "different_owners",
}

// String is "on", or names why it is off: "disabled", "one_node" and so on.
func (p PXN) String() string { return words.Name("unknown", pxnNames[:], p) }

// MarshalText is String.
func (p PXN) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the reverse of MarshalText. A later version's name becomes PXNUnknown.
func (p *PXN) UnmarshalText(text []byte) error {
	*p, _ = words.Named[PXN]("PXN", pxnNames[:], string(text))
	return nil
}

// shownPlace is a Place in a slot's encoding.
type shownPlace struct {
	node, local, connections int32
	locals, pxn              uint16
}

func (p Place) shown() shownPlace {
	return shownPlace{int32(p.Node), int32(p.Local), int32(p.Connections), uint16(p.Locals), uint16(p.PXN)}
}

func (p shownPlace) place() Place {
	return Place{
		Node: int(p.node), Local: int(p.local), Locals: int(p.locals), Connections: int(p.connections), PXN: PXN(p.pxn),
	}
}
