package tape

import (
	"os"
	"time"
	"unsafe"
)

// Kept is the tape of a process without telemetry of its own, for the process that provides it: that one sets the
// header's fields that a process with telemetry sets itself. Failed writes to a file that was cut short are ignored.
type Kept struct{ *Reader }

// OpenKept opens a tape that this user may write to. Errors are those of Open.
func OpenKept(path string) (*Kept, error) {
	t, err := openFile(path, os.O_RDWR, false)
	if err != nil {
		return nil, err
	}
	return &Kept{&Reader{file: t}}, nil
}

// Delivered is Writer.Delivered.
func (k *Kept) Delivered(until int64) { _ = k.put(unsafe.Offsetof(changing{}.delivered), until) }

// Exporter is Writer.Exporter.
func (k *Kept) Exporter(number uint64) {
	_ = k.put(unsafe.Offsetof(changing{}.exporter), int64(number))
}

// Numbered sets Header.AgentPID.
func (k *Kept) Numbered(pid int) { _ = k.put(unsafe.Offsetof(changing{}.agentPID), int64(pid)) }

// Resumed is Writer.Resumed.
func (k *Kept) Resumed(paused, since int64, starved time.Duration) {
	_ = k.put(unsafe.Offsetof(changing{}.starved), int64(starved))
	_ = k.put(unsafe.Offsetof(changing{}.paused), paused, since)
}
