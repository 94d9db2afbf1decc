package node

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/health"
)

// TestSeeds: a process finds the other processes of its host, and ignores other files.
func TestSeeds(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	own, other, ended := host+"-"+strconv.Itoa(os.Getpid()), "elsewhere-1", host+"-999999999"
	for name, port := range map[string]int{own: 1, other: 2, ended: 3} {
		if _, err := health.WriteBeside(filepath.Join(dir, name), seedSuffix,
			"127.0.0.1:"+strconv.Itoa(port)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"garbage.ras": "\x00\xff", "empty.ras": "", ".new.ras": "127.0.0.1:9",
		"x.tape": "127.0.0.1:9",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.ras"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere-1.ras"), filepath.Join(dir, "link.ras")); err != nil {
		t.Fatal(err)
	}
	want := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:2")}
	if diff := cmp.Diff(want, readSeeds(dir, own),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("seeds (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(dir, ended+".ras")); !os.IsNotExist(err) {
		t.Errorf("the file of a process that ended is still there: %v", err)
	}
	if seeds := readSeeds(filepath.Join(dir, "absent"), own); seeds != nil {
		t.Errorf("seeds in no directory: %v", seeds)
	}
	if _, err := health.WriteBeside(filepath.Join(dir, "absent", own), seedSuffix, "127.0.0.1:1"); err == nil {
		t.Error("a seed was written into no directory")
	}
}
