package launch

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

const (
	minSecret = 16      // bytes; shorter ones can be guessed
	maxSecret = 1 << 12 // bytes; a longer file is no secret
)

// VariableError says what is wrong with one environment variable. It is a [lifecycle.ErrInvalidArgument].
type VariableError struct {
	Name    string
	Value   string // empty when it is not set; never a secret
	Allowed string // what it should be
}

// Error names the variable, its value, and what is allowed.
func (e *VariableError) Error() string {
	if e.Value == "" {
		return e.Name + " is not set: " + e.Allowed
	}
	return fmt.Sprintf("%s=%q: %s", e.Name, e.Value, e.Allowed)
}

// ErrorCode is [lifecycle.CodeInvalidArgument].
func (e *VariableError) ErrorCode() lifecycle.Code { return lifecycle.CodeInvalidArgument }

// Is reports whether target is lifecycle.ErrInvalidArgument.
func (e *VariableError) Is(target error) bool { return target == lifecycle.ErrInvalidArgument }

// FromEnv reads this process's place in its job from the environment; getenv is [os.Getenv], or a test's. It uses no
// network, and no file but CARILLON_JOB_SECRET_FILE. The error joins a *[VariableError] for every wrong variable, so
// that all can be corrected at once.
func FromEnv(getenv func(string) string) (World, error) {
	e := &environment{getenv: getenv}
	w := e.launcher()
	e.overrides(&w)
	e.check(&w)
	if len(e.problems) > 0 {
		return World{}, errors.Join(e.problems...)
	}
	return w, nil
}

// Secret reads the job's secret alone, as FromEnv does, for a program that starts ranks; it is nil if there is none.
func Secret(getenv func(string) string) ([]byte, error) {
	e := &environment{getenv: getenv}
	var w World
	e.secret(&w)
	return w.Secret, errors.Join(e.problems...)
}

// environment collects the problems of the variables that are read from it.
type environment struct {
	getenv   func(string) string
	problems []error
}

func (e *environment) get(name string) string { return strings.TrimSpace(e.getenv(name)) }

func (e *environment) first(names ...string) (name, value string) {
	for _, name := range names {
		if value := e.get(name); value != "" {
			return name, value
		}
	}
	return names[0], ""
}

func (e *environment) has(names ...string) bool {
	_, value := e.first(names...)
	return value != ""
}

func (e *environment) problem(name, value, format string, args ...any) {
	e.problems = append(e.problems, &VariableError{Name: name, Value: value, Allowed: fmt.Sprintf(format, args...)})
}

// number reads a whole number from low to high from the first of the variables that is set; one must be.
func (e *environment) number(low, high int, names ...string) int {
	name, value := e.first(names...)
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		e.problem(name, value, "it must be a whole number from %d to %d", low, high)
		return low
	}
	return n
}

// optional is number for a variable that need not be set.
func (e *environment) optional(low, high, unset int, names ...string) int {
	if !e.has(names...) {
		return unset
	}
	return e.number(low, high, names...)
}

// world reads rank and size. A wrong size does not make the rank wrong, too.
func (e *environment) world(launcher, rank string, size ...string) World {
	before := len(e.problems)
	w := World{Launcher: launcher, LocalRank: unknownRank}
	w.Size = e.number(1, rendezvous.MaxRanks, size...)
	if len(e.problems) > before {
		w.Size = rendezvous.MaxRanks // the most that may be allowed
	}
	w.Rank = e.number(0, w.Size-1, rank)
	return w
}

// local reads the rank and the number of ranks on this host, if they are set.
func (e *environment) local(w *World, rank, size string) {
	w.LocalRank = e.optional(0, w.Size-1, w.LocalRank, rank)
	w.LocalSize = e.optional(1, w.Size, w.LocalSize, size)
}

func (e *environment) overrides(w *World) {
	if w.Launcher != Carillon && w.Launcher != None {
		w.Size = e.optional(1, rendezvous.MaxRanks, w.Size, "CARILLON_WORLD_SIZE")
		w.Rank = e.optional(0, w.Size-1, w.Rank, "CARILLON_RANK")
	}
	e.local(w, "CARILLON_LOCAL_RANK", "CARILLON_LOCAL_WORLD_SIZE")
	w.Address = cmp.Or(e.get("CARILLON_ADDRESS"), w.Address)
	w.Rendezvous = e.get("CARILLON_RENDEZVOUS")
	w.Job = folderName(w.Job)
	if job := e.get("CARILLON_JOB"); job != "" {
		if w.Job = job; strings.HasPrefix(job, ".") || folderName(job) != job {
			e.problem("CARILLON_JOB", job, "it must be a name for a folder: at most %d bytes, no slash or control "+
				"character, and no dot before it", longestJob)
		}
	}
	e.secret(w)
}

// longestJob is the most bytes of a job's name, which becomes the name of its tapes' folder.
const longestJob = 63

// folderName makes a folder's name from a launcher's name for a job, which may be a path, or long. Jobs with different
// names have different folders.
func folderName(job string) string {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, job)
	if name == job && len(job) <= longestJob {
		return job
	}
	sum := fmt.Sprintf("-%x", sha256.Sum256([]byte(job)))[:9]
	return strings.ToValidUTF8(name[:min(len(name), longestJob-len(sum))], "") + sum
}

func (e *environment) secret(w *World) {
	const byValue, byFile = "CARILLON_JOB_SECRET", "CARILLON_JOB_SECRET_FILE"
	name, secret, path := byValue, e.get(byValue), e.get(byFile)
	switch {
	case secret == "" && path == "":
		return
	case secret != "" && path != "":
		e.problem(byFile, path, "%s is set too; set one of them", byValue)
		return
	case path != "":
		name = byFile
		content, err := readSecret(path)
		if err != nil {
			e.problem(byFile, path, "it must be a file with the job's secret: %v", err)
			return
		}
		secret = content
	}
	if len(secret) < minSecret || len(secret) > maxSecret {
		e.problem(name, fmt.Sprintf("(%d bytes)", len(secret)),
			"the secret must have %d to %d bytes; openssl rand -hex 32 makes one", minSecret, maxSecret)
		return
	}
	w.Secret = []byte(secret)
}

// readSecret reads a file, up to the longest length of a secret.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSecret+2)) // with the end of its line
	return strings.TrimSpace(string(content)), err
}

func (e *environment) check(w *World) {
	if len(e.problems) > 0 {
		return // further problems would only follow from these
	}
	if w.Rank >= w.Size {
		const name = "CARILLON_WORLD_SIZE"
		e.problem(name, e.get(name), "this process is rank %d, so it must be at least %d", w.Rank, w.Rank+1)
	}
	if w.LocalSize > 0 && w.LocalRank >= w.LocalSize {
		e.problem("LOCAL_RANK", strconv.Itoa(w.LocalRank),
			"this host has %d ranks, so it must be from 0 to %d", w.LocalSize, w.LocalSize-1)
	}
	if w.Launcher == None {
		w.Address, w.Rendezvous = "", "" // there are no other ranks
		return
	}
	if w.Rendezvous != "" {
		w.Address = ""
		if w.Job == "" && len(w.Secret) == 0 {
			e.problem("CARILLON_JOB", "",
				"with CARILLON_RENDEZVOUS, it must be a name that no other job there has at a time")
		}
		return
	}
	if w.Size > 1 && w.Address == "" {
		e.problem("CARILLON_ADDRESS", "", "%s does not say where rank 0 is; it must be host:port", w.Launcher)
		return
	}
	if w.Address != "" {
		if _, err := w.UniqueID(0); err != nil {
			name, _ := e.first("CARILLON_ADDRESS", "MASTER_ADDR")
			e.problem(name, w.Address, "%v", err)
		}
	}
}
