package mesh_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/carillon-rt/carillon/ras/mesh"
)

// A process joins its job, gets events about others, and asks all members what they are doing.
func Example() {
	self, err := mesh.Self(0, 1) // rank 0 of 1
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := mesh.Start(mesh.Config{
		Self:    self,
		Secret:  make([]byte, mesh.SecretSize), // the job's; this one is for an example
		Job:     "train-17",
		Tuning:  mesh.OneMachine(),
		OnEvent: func(e mesh.Event) { fmt.Println(e) },
		Handler: func(_ context.Context, from string, question []byte) []byte {
			return fmt.Appendf(nil, "%s: in step 12", question)
		},
		// A dead or stopped process of this host can't answer; its tape can.
		LocalNote: func(m mesh.Member) []byte { return []byte("its last step was 11") },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = m.Close() }()

	var seeds []netip.AddrPort // those that the others' Self().Addr says
	if _, err := m.Join(context.Background(), seeds...); err != nil {
		fmt.Println(err)
		return
	}
	answers, err := m.Ask(context.Background(), []byte("where are you?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for a := range answers {
		fmt.Printf("%s\n", a.Body)
	}
	// Output: where are you?: in step 12
}
