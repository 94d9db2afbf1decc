// Package find finds jobs by the tapes of their processes on this host, and their health endpoints.
package find

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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
	Dir       string // the folder of its tapes
	Started   time.Time
	Processes []Process // sorted by the paths of their tapes; earlier runs' processes are included
}

// Process is one process of a job.
type Process struct {
	Tape    string
	Host    string
	PID     int // the pid that people are told; see tape.Header.KnownPID
	Rank    int // in the job; -1 if the tape doesn't tell
	Started time.Time
	Running bool // also set if unknown: the process is on another host that shares the folder
	Died    bool // it ended without closing its tape
	// URL is its health endpoint; empty if the process has none or has ended.
	URL string
	// Own tells whether this user wrote the URL. Only such an endpoint may be sent the token.
	Own bool
	// Watched tells that the process has telemetry of its own; else its endpoint is that of an agent, if one follows
	// it.
	Watched bool
	// Denied tells that the process has a health endpoint whose address this user may not read.
	Denied bool
}

// Running tells whether any of the job's processes runs, or may run on another host that shares the folder.
func (j *Job) Running() bool {
	return slices.ContainsFunc(j.Processes, func(p Process) bool { return p.Running })
}

// Ended tells in a sentence how the job ended.
func (j *Job) Ended() string {
	how, died := "", 0
	for i := range j.Processes {
		if j.Processes[i].Died {
			died++
			how = fmt.Sprintf(": %d of its %d processes here died", died, len(j.Processes))
		}
	}
	return fmt.Sprintf("job %s has ended%s; carillon postmortem %s tells what it did", words.Line(j.Name), how,
		words.Line(j.Dir))
}

// TakenUpTime is how long after its start a job may be without a health endpoint: an agent first waits a second to see
// whether the processes have telemetry of their own.
const TakenUpTime = 4 * time.Second

// Silence tells in a sentence why none of the job's processes can be asked, and what to do. errs are the errors of its
// endpoints, if it has any; Silence returns "" if they say enough themselves.
func (j *Job) Silence(errs ...error) string {
	name := words.Line(j.Name)
	unwatched := func(p Process) bool { return p.Running && !p.Watched }
	followed := slices.ContainsFunc(j.Processes, unwatched)
	refused := !slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, syscall.ECONNREFUSED) })
	tapes := fmt.Sprintf("; carillon postmortem %s reads its tapes", words.Line(j.Dir))
	switch {
	case len(errs) > 0 && (!followed || !refused):
		return ""
	case len(errs) > 0:
		return fmt.Sprintf("job %s runs, and the agent that followed it has ended: start carillon agent%s", name, tapes)
	case slices.ContainsFunc(j.Processes, func(p Process) bool { return p.Denied }):
		return fmt.Sprintf("job %s runs, and the agent that follows it answers only its own user and root: ask as one "+
			"of them, or by --url with a token%s", name, tapes)
	case followed:
		return fmt.Sprintf("job %s runs, and no agent with a health endpoint follows it here: start carillon agent, "+
			"as the job's user or root%s", name, tapes)
	default:
		return fmt.Sprintf("job %s runs, but has no health endpoint here (CARILLON_HEALTH_ADDR)%s", name, tapes)
	}
}

// NotFoundError means that there is no such job, or that it has ended.
type NotFoundError struct{ Problem string }

// Error is the problem in a sentence.
func (e *NotFoundError) Error() string { return e.Problem }

func notFound(format string, args ...any) error {
	return &NotFoundError{words.Line(fmt.Sprintf(format, args...))}
}

// Folders are the folders of a JOB's tapes, at least one. If JOB is a name, they are the folders with this name in
// tape.Dirs. Otherwise it is the path of a folder of tapes, or of a folder of several jobs. For an empty JOB they are
// the default folders that exist; all of them, because the first one may have had no room. The error is a
// *NotFoundError.
func Folders(job string) (all []string, err error) {
	dirs := tape.Dirs("")
	switch {
	case job != "":
	case os.Getenv(tape.DirVariable) != "":
		return dirs[:1], nil
	default:
		return existing(dirs), nil
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
		return nil, notFound("%s is a URL, not a job or a folder; status and watch take it with --url", job)
	case !name:
		return nil, notFound("there is no folder %s", job)
	}
	last := ""
	if names := Names(dir, true); len(names) > 0 {
		const most = 5
		last = "; the last jobs are " + strings.Join(names[:min(len(names), most)], ", ")
		if len(names) > most {
			last += " …"
		}
	}
	return nil, notFound("there is no job %s in %s, and no folder of that name here%s", job, dir, last)
}

// existing returns those of the folders that exist, or the first one if none does.
func existing(dirs []string) []string {
	all := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !isFolder(dir) })
	if len(all) == 0 {
		return dirs[:1]
	}
	return all
}

// isFolder tells whether a path is a folder. A path that may not be examined counts as one: reading it gives the error.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() || errors.Is(err, fs.ErrPermission)
}

// Find finds a running JOB: that of a folder of tapes, or the job in a folder of jobs that started last. The error is a
// *NotFoundError, or that of a folder which this user may not read.
func Find(what string) (*Job, error) {
	dirs, err := Folders(what)
	if err != nil {
		return nil, err
	}
	job, err := Read(dirs[0])
	if err == nil && !job.Running() {
		err = notFound("%s", job.Ended())
	}
	if job != nil || errors.Is(err, fs.ErrPermission) {
		return job, err
	}
	var last *Job
	var denied error
	hint := ""
	for _, dir := range dirs {
		all, err := jobs(dir)
		denied = cmp.Or(denied, err)
		for _, job := range all {
			hint = " (carillon postmortem tells of the last one)"
			if job.Running() && (last == nil || job.Started.After(last.Started)) {
				last = job
			}
		}
	}
	if last != nil {
		return last, nil
	}
	if denied != nil {
		hint += fmt.Sprintf(", as far as this user may see (%v)", denied)
	}
	return nil, notFound("no job with tapes in %s is running%s; name another folder, or set CARILLON_TAPE_DIR. A "+
		"program has tapes once node.Start has returned, an NCCL program from its first communicator on", dirs[0], hint)
}

// Names are the names of the running jobs in a folder, or of all its jobs, the last started first.
func Names(dir string, all bool) []string {
	var names []string
	found, _ := jobs(dir)
	for _, job := range found {
		if all || job.Running() {
			names = append(names, filepath.Base(job.Dir)) // the name by which Find finds it
		}
	}
	return names
}

// jobs are the jobs in a folder, the last started first; denied is the error of a job that this user may not read.
func jobs(dir string) (all []*Job, denied error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		switch job, err := Read(filepath.Join(dir, entry.Name())); {
		case err == nil:
			all = append(all, job)
		case errors.Is(err, fs.ErrPermission):
			denied = err
		}
	}
	slices.SortFunc(all, func(a, b *Job) int { return b.Started.Compare(a.Started) })
	return all, denied
}

// Read reads the folder of one job's tapes, and skips unreadable ones. If the folder has no readable tape, the error is
// that of a tape which this user may not read, if there is one.
func Read(dir string) (*Job, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	job := &Job{Dir: dir}
	none := fmt.Errorf("%s: it has no tape", dir)
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".tape" || !entry.Type().IsRegular() {
			continue
		}
		p, name, err := read(filepath.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrPermission) {
			none = err
		}
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
		return nil, none
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
		Tape: path, Host: h.Host, PID: h.KnownPID(), Rank: h.Rank, Started: h.Created,
		Running: !h.Closed && life != process.Dead, Died: !h.Closed && life == process.Dead, Watched: h.Watched,
	}
	if !p.Running {
		return p, h.Job, nil
	}
	url, err := health.ReadAddress(path)
	p.Denied = errors.Is(err, fs.ErrPermission)
	if err != nil || life == process.Unknown && Loopback(url) { // a loopback address of another host
		return p, h.Job, nil
	}
	p.URL, p.Own = url, own(path)
	return p, h.Job, nil
}

// own tells whether a tape's folder belongs to this user, and nobody else may write to it.
func own(path string) bool {
	info, err := os.Stat(filepath.Dir(path))
	if err != nil || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// Loopback tells whether a URL's host is a loopback address.
func Loopback(text string) bool {
	u, err := url.Parse(text)
	return err == nil && health.Loopback(u.Host)
}

// Reachable replaces an unspecified address, to which a server binds, by an address to connect to: with TLS, by this
// host's name, which is in the server's certificate.
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
