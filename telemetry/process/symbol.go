package process

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// Bounds of reading a file that a process names: of its symbol table, and of a name in it.
const (
	maxSymbols = 256 << 20
	maxName    = 1 << 10
)

// Function returns the function whose call returns to address, and the offset of address in it, by the symbols of a
// file that the process had loaded at the time loaded. The address is relative to the file, not to where it was loaded.
// name is empty if the file can't be read, was written since, or has no such symbol. It is also empty for a process
// that has died in another pid namespace: its path may be another file here. Function blocks for as long as the file
// system does.
func (id ID) Function(path string, address uint64, loaded time.Time) (name string, offset uint64) {
	f := id.open(path)
	if f == nil {
		return "", 0
	}
	defer f.Close() //nolint:errcheck // only read from
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.ModTime().After(loaded) {
		return "", 0
	}
	return function(f, address)
}

// open opens a file by the process's path, below the process's root directory; nil if that is impossible. A link can't
// lead out of that directory.
func (id ID) open(path string) *os.File {
	here, dir := id.Here(), "/"
	alive := here.Liveness() == Alive
	if alive {
		dir = "/proc/" + strconv.Itoa(here.PID) + "/root"
	} else if id.PIDSpace == 0 || id.PIDSpace != Self().PIDSpace || here.Liveness() != Dead {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close() //nolint:errcheck // only read from
	local, absolute := strings.CutPrefix(path, "/")
	if !absolute || alive && here.Liveness() != Alive { // the directory may be a later process's
		return nil
	}
	if st, err := root.Stat(local); err != nil || !st.Mode().IsRegular() { // opening a device may have effects
		return nil
	}
	f, err := root.OpenFile(local, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil
	}
	return f
}

// function finds the symbol in an ELF file that may be malicious; debug/elf isn't made for such files.
func function(f io.ReaderAt, address uint64) (name string, offset uint64) {
	part := func(at, size uint64) *io.SectionReader {
		return io.NewSectionReader(f, int64(min(at, math.MaxInt64)), int64(min(size, math.MaxInt64)))
	}
	le := binary.LittleEndian
	var h elf.Header64
	if binary.Read(part(0, math.MaxInt64), le, &h) != nil || string(h.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG ||
		elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return "", 0
	}
	sections := make([]elf.Section64, h.Shnum) // 4 MiB at most
	if binary.Read(part(h.Shoff, math.MaxInt64), le, sections) != nil {
		return "", 0
	}
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		i := slices.IndexFunc(sections, func(s elf.Section64) bool { return elf.SectionType(s.Type) == kind })
		if i < 0 || sections[i].Size > maxSymbols || int(sections[i].Link) >= len(sections) {
			continue
		}
		symbol, found := covering(part(sections[i].Off, sections[i].Size), address)
		names := sections[sections[i].Link]
		if !found || uint64(symbol.Name) >= names.Size {
			continue
		}
		var buf [maxName]byte
		at := names.Off + uint64(symbol.Name)
		n, _ := part(at, names.Size-uint64(symbol.Name)).Read(buf[:])
		text, _, ended := bytes.Cut(buf[:n], []byte{0})
		if ended && len(text) > 0 && !bytes.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			return string(text), address - symbol.Value
		}
	}
	return "", 0
}

// covering returns the function in a symbol table whose code contains an address behind its start, or ends at it.
func covering(table io.Reader, address uint64) (best elf.Sym64, found bool) {
	in, le := bufio.NewReaderSize(table, 64<<10), binary.LittleEndian
	for {
		b, err := in.Peek(elf.Sym64Size)
		if err != nil {
			return best, found
		}
		s := elf.Sym64{
			Name: le.Uint32(b), Info: b[4], Shndx: le.Uint16(b[6:]), Value: le.Uint64(b[8:]), Size: le.Uint64(b[16:]),
		}
		kind := elf.SymType(s.Info & 0xf)
		if code := kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC; code && s.Shndx != uint16(elf.SHN_UNDEF) &&
			s.Value < address && address-s.Value <= s.Size && s.Value >= best.Value {
			best, found = s, true
		}
		_, _ = in.Discard(elf.Sym64Size) // it is in the buffer
	}
}
