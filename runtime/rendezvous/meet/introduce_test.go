package meet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIntroductions(t *testing.T) {
	want := Introduction{Meets: "host:1", Contact: "a:1", Card: []byte("card"), Device: "gpu", Run: 7}
	whole := want.encode()
	var got Introduction
	if err := got.decode(whole); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range len(whole) {
		if err := got.decode(whole[:n]); err == nil {
			t.Errorf("%q is taken as %+v", whole[:n], got)
		}
	}
	if err := got.decode(append(whole, 1)); err == nil {
		t.Error("something that is too long is taken")
	}
}
