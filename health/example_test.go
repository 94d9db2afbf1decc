package health_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/carillon-rt/carillon/health"
)

// A process with one check, which fails: the process is alive, but not ready.
func Example() {
	checks := &health.Registry{}
	disk := func(context.Context) error { return errors.New("no space left for checkpoints") }
	if err := checks.Register("disk", health.Ready, 0, disk); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	server, err := health.Listen(ctx, health.Config{Addr: "127.0.0.1:0", Title: "trainer", Registry: checks})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop(ctx)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/livez", "/readyz"} {
		resp, err := client.Get(server.URL() + path)
		if err != nil {
			log.Print(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		fmt.Println(path, resp.StatusCode)
	}
	// Output:
	// /livez 200
	// /readyz 503
}
