package postmortem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// SendLeft sends the spans that dead processes of this host left on their tapes below a folder to the receiver of this
// process's OTEL_* variables, and marks the tapes as sent. It sends only those of processes that had the same
// variables, and so the same receiver and service. Each tape is sent once, however many processes call it; a tape whose
// spans were refused is left for the next call. A folder that doesn't exist has no tapes.
//
// It blocks as Export does, and stops at the first tape that could not be sent.
func SendLeft(ctx context.Context, dir string, opts ExportOptions) (total Exported, err error) {
	r := &Report{}
	files, _, err := r.list([]string{dir})
	if errors.Is(err, fs.ErrNotExist) {
		return total, nil
	}
	opts.outage = new(otlp.Outage)
	variables := otlp.Fingerprint()
	for _, path := range files {
		if err != nil || total.Failed > 0 {
			break
		}
		err = sendLeft(ctx, path, variables, &opts, &total)
	}
	return total, err
}

// left tells whether a dead process left spans that processes with the same variables should send.
func left(r *tape.Reader, variables uint64) bool {
	h := r.Header()
	return h.Exporter == variables && h.Exported != tape.AllExported && !h.Closed && r.Liveness() == osprocess.Dead
}

// sendLeft sends the spans that are left on one tape, if any, and adds to total.
func sendLeft(ctx context.Context, path string, variables uint64, opts *ExportOptions, total *Exported) error {
	t, err := tape.Open(path)
	if err != nil {
		return nil //nolint:nilerr // it can't be read, so nothing can be sent
	}
	candidate := left(t, variables)
	_ = t.Close()
	if !candidate {
		return nil
	}
	claim, err := tape.OpenClaim(path)
	if _, cut := errors.AsType[*tape.FormatError](err); cut || errors.Is(err, tape.ErrClaimed) {
		return nil // it was truncated a moment ago, or another process sends it
	}
	if err != nil {
		return fmt.Errorf("postmortem: %w", err)
	}
	defer claim.Close() //nolint:errcheck // Sent reports failed writes
	if !left(claim.Reader, variables) {
		return nil // another process was faster
	}
	p, err := readTape(path, &Options{Last: 1})
	if err != nil {
		return nil //nolint:nilerr // it was truncated a moment ago
	}
	procs, aside := []*process{p}, &Report{}
	ledgers := aside.readLedgers([]string{filepath.Join(filepath.Dir(path), osprocess.Ledger)})
	ends(procs, ledgers)
	aside.endings(procs, ledgers)
	stats, err := export(ctx, p, p.last, opts, total)
	total.Processes++
	if err == nil && stats.Failed+stats.Dropped == 0 {
		err = claim.Sent()
	}
	return err
}
