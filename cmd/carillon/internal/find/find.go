// Package find finds running jobs by the tapes that their processes write on this host, and where their health
// endpoints are.
package find

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Job is a job as its tapes on this host show it.
type Job struct {
	Name      string
	Dir       string // of its tapes
	Started   time.Time
	Processes []Process // by the paths of their tapes; of those started again under one name, all
}

// Process is one process of a job.
type Process struct {
	Tape    string
	Host    string
	PID     int
	Started time.Time
	Running bool // or it may, on another host that shares the folder
	Died    bool // it ended without closing its tape
	// URL is where its health endpoint is; empty if it has none, or has ended.
	URL string
	// Own is true if the URL was written by this user: a password is told to nobody else.
	Own bool
}

// Running tells whether any of the job's processes runs, or may do so on another host that shares the folder.
func (j *Job) Running() bool {
	return slices.ContainsFunc(j.Processes, func(p Process) bool { return p.Running })
}

// Ended says how the job ended, in a sentence.
func (j *Job) Ended() string {
	how, died := "its processes ended in order", 0
	for i := range j.Processes {
		if j.Processes[i].Died {
			died++
			how = fmt.Sprintf("%d of its %d processes here died", died, len(j.Processes))
		}
	}
	return fmt.Sprintf("job %s has ended: %s; carillon postmortem %s tells what it did", words.Line(j.Name), how,
		words.Line(j.Dir))
}

// NotFoundError means that there is no such job, or that it doesn't run any more.
type NotFoundError struct{ Problem string }

// Error says what there is instead.
func (e *NotFoundError) Error() string { return e.Problem }

// Folder is the first of Folders.
func Folder(job string) (string, error) {
	all, err := Folders(job)
	if err != nil {
		return "", err
	}
	return all[0], nil
}

// Folders are where the tapes of a job are, by what every command takes for JOB: its name, which is that of its folders
// among tape.Dirs; otherwise a folder of tapes, or of jobs of which the last is meant. Empty are those in which tapes
// go unless somebody names one: the first may have had no room. There is at least one. The error is a *NotFoundError.
func Folders(job string) (all []string, err error) {
	dirs := tape.Dirs("")
	switch {
	case job != "":
	case os.Getenv(tape.DirVariable) != "":
		return dirs[:1], nil
	default:
		return append(dirs[:1:1], slices.DeleteFunc(dirs[1:], func(dir string) bool { return !isFolder(dir) })...), nil
	}
	name := !strings.ContainsRune(job, filepath.Separator) && job != "." && job != ".."
	for _, dir := range dirs {
		if named := filepath.Join(dir, job); name && isFolder(named) {
			all = append(all, named)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	dir := dirs[0]
	switch {
	case isFolder(job):
		return []string{job}, nil
	case strings.Contains(job, "://"):
		return nil, &NotFoundError{
			fmt.Sprintf("%s is a URL, not a job or a folder; status and watch take it with --url", words.Line(job)),
		}
	case !name:
		return nil, &NotFoundError{fmt.Sprintf("there is no folder %s", words.Line(job))}
	}
	text := fmt.Sprintf("there is no job %s in %s, and no folder of that name here", words.Line(job), words.Line(dir))
	if names := Names(dir, true); len(names) > 0 {
		const most = 5
		more := ""
		if len(names) > most {
			names, more = names[:most], " …"
		}
		text += "; the last jobs are " + words.Line(strings.Join(names, ", ")) + more
	}
	return nil, &NotFoundError{text}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Find finds a job that runs, by what Folder takes: the job of a folder of tapes; of a folder of jobs, that which
// started last. The error is a *NotFoundError.
func Find(what string) (*Job, error) {
	dirs, err := Folders(what)
	if err != nil {
		return nil, err
	}
	if job, err := Read(dirs[0]); err == nil {
		return job, running(job)
	}
	var last *Job
	for _, dir := range dirs {
		for _, job := range jobs(dir) {
			if job.Running() && (last == nil || job.Started.After(last.Started)) {
				last = job
			}
		}
	}
	if last != nil {
		return last, nil
	}
	return nil, &NotFoundError{
		fmt.Sprintf("no job runs whose tapes are in %s (CARILLON_TAPE_DIR, or an argument, says "+
			"where else to look)", words.Line(dirs[0])),
	}
}

func running(j *Job) error {
	if j.Running() {
		return nil
	}
	return &NotFoundError{j.Ended()}
}

// Names are those of the jobs in a folder that run, or of all of them, the last started first.
func Names(dir string, all bool) []string {
	var names []string
	for _, job := range jobs(dir) {
		if all || job.Running() {
			names = append(names, filepath.Base(job.Dir)) // which is what Find takes
		}
	}
	return names
}

func jobs(dir string) []*Job {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []*Job
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if job, err := Read(filepath.Join(dir, entry.Name())); err == nil {
			all = append(all, job)
		}
	}
	slices.SortFunc(all, func(a, b *Job) int { return b.Started.Compare(a.Started) })
	return all
}

// Read reads the folder of one job's tapes. Tapes that can't be read are left out.
func Read(dir string) (*Job, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	job := &Job{Dir: dir}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".tape" || !entry.Type().IsRegular() {
			continue
		}
		p, name, err := read(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue
		}
		job.Name = name
		if p.Started.After(job.Started) {
			job.Started = p.Started
		}
		job.Processes = append(job.Processes, p)
	}
	if len(job.Processes) == 0 {
		return nil, fmt.Errorf("%s: no tape is in it", dir)
	}
	return job, nil
}

func read(path string) (p Process, job string, err error) {
	r, err := tape.Open(path)
	if err != nil {
		return p, "", err
	}
	defer r.Close() //nolint:errcheck // only read from
	h := r.Header()
	life := r.Liveness()
	p = Process{
		Tape: path, Host: h.Host, PID: r.Process().PID, Started: h.Created,
		Running: !h.Closed && life != process.Dead, Died: !h.Closed && life == process.Dead,
	}
	if !p.Running {
		return p, h.Job, nil
	}
	url, err := health.ReadAddress(path)
	if err != nil || life == process.Unknown && Loopback(url) { // another host's loopback is not this one's
		return p, h.Job, nil
	}
	p.URL, p.Own = url, own(path)
	return p, h.Job, nil
}

// own tells whether a tape, and what lies beside it, is this user's.
func own(path string) bool {
	info, err := os.Stat(filepath.Dir(path))
	if err != nil || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// Loopback tells whether a URL leads to this host's loopback.
func Loopback(text string) bool {
	u, err := url.Parse(text)
	return err == nil && health.Loopback(u.Host)
}

// Reachable is the URL with an address to which one can connect, where it has the one to which a server is bound that
// listens on all: over TLS, this host's name, which its certificate has.
func Reachable(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || !addr.IsUnspecified() {
		return text
	}
	host := "127.0.0.1"
	if u.Scheme == "https" {
		if host, err = os.Hostname(); err != nil {
			return text
		}
	}
	u.Host = net.JoinHostPort(host, u.Port())
	return u.String()
}
