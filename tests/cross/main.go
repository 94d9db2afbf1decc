// Command cross checks that the packages of a module, and their tests, have no type errors on other machines:
//
//	cross DIR GOOS/GOARCH…
//
// It reads the sources of all packages that they import, which takes seconds; go vet would compile all of these.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cross:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: cross DIR GOOS/GOARCH…")
	}
	for _, target := range args[1:] {
		system, arch, ok := strings.Cut(target, "/")
		if !ok {
			return fmt.Errorf("%q is no GOOS/GOARCH", target)
		}
		loaded, err := packages.Load(&packages.Config{
			Mode: packages.LoadAllSyntax, Dir: args[0], Tests: true,
			Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch),
		}, "./...")
		if err != nil {
			return fmt.Errorf("load the packages for %s: %w", target, err)
		}
		if n := packages.PrintErrors(loaded); n > 0 {
			return fmt.Errorf("%s: %d errors in the packages of %s", target, n, args[0])
		}
		if len(loaded) == 0 {
			return fmt.Errorf("%s has no packages", args[0])
		}
		fmt.Printf("%s: no errors in %d packages and tests\n", target, len(loaded))
	}
	return nil
}
