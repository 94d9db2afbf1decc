package lifecycle

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestCommID(t *testing.T) {
	uid, _ := UniqueIDFromSecret([]byte("job 1"), "")
	root := RootCommID(uid)
	seen := map[CommID]string{{}: "the zero id", root: "the root"}
	add := func(id CommID, what string) {
		if other, ok := seen[id]; ok {
			t.Errorf("%s has the same id as %s", what, other)
		}
		seen[id] = what
	}
	child := ChildCommID(root, 0, 0)
	add(child, "color 0 of split 0")
	add(ChildCommID(root, 0, 1), "color 1 of split 0")
	add(ChildCommID(root, 1, 0), "color 0 of split 1")
	add(ChildCommID(root, 0, -1), "color -1 of split 0")
	add(ChildCommID(root, 0, math.MaxInt32), "the largest color")
	add(ChildCommID(child, 0, 0), "color 0 of split 0 of the child")
	if ChildCommID(root, 0, 0) != child {
		t.Error("two ranks derive different ids for one child")
	}
	// Ranks of several versions meet only if the derivation stays.
	if got, want := child.String(), "d4dc113610ac9bc8a49e1bba06845328"; got != want {
		t.Errorf("ChildCommID = %s, was %s: ranks of this version can't meet ranks of earlier ones", got, want)
	}
}

func TestCommIDText(t *testing.T) {
	id := CommID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	if got, want := id.String(), "00112233445566778899aabbccddeeff"; got != want {
		t.Errorf("String() = %s; want %s", got, want)
	}
	if got, want := id.Short(), "0011223344556677"; got != want {
		t.Errorf("Short() = %s; want %s", got, want)
	}
	var back CommID
	text, _ := id.MarshalText()
	if err := back.UnmarshalText(text); err != nil || back != id {
		t.Errorf("%s comes back as %v (%v)", text, back, err)
	}
	for _, bad := range []string{"", id.Short(), id.String() + "0", strings.Replace(id.String(), "a", "g", 1)} {
		if err := back.UnmarshalText([]byte(bad)); !errors.Is(err, ErrInvalidArgument) || back != id {
			t.Errorf("UnmarshalText(%q) = %v, id %v; want an invalid argument and the id as it was", bad, err, back)
		}
	}
}
