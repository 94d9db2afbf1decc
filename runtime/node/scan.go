package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const (
	// scanInterval is how often an agent looks for new tapes if it gets no notification.
	scanInterval = 200 * time.Millisecond
	// scanPause is how long it waits after a notification before it scans: many files may be made at once.
	scanPause = 10 * time.Millisecond
	// recentTime is how long before the agent a process may have begun that has ended since and is followed all the
	// same.
	recentTime = time.Second
)

// run looks for new tapes as soon as there are some: an agent knows how a process ended only if it found the process in
// time.
func (a *Agent) run(ctx context.Context) {
	some := make(chan struct{}, 1)
	a.work.also(func(context.Context) {
		for a.news.Wait() == nil {
			select {
			case some <- struct{}{}:
			default: // the next scan finds it
			}
		}
	})
	defer a.news.Close() //nolint:errcheck // nothing is lost if it fails
	ticker := time.NewTicker(cmp.Or(a.settings.scan, scanInterval))
	defer ticker.Stop()
	for {
		a.Scan()
		a.forget(ctx)
		select {
		case <-ctx.Done():
			return
		case <-some:
			select { // let the same scan find other new tapes
			case <-ctx.Done():
				return
			case <-time.After(scanPause):
			}
		case <-ticker.C:
		}
	}
}

// Scan looks for new tapes now, and begins to follow them.
func (a *Agent) Scan() {
	a.scanning.Lock()
	defer a.scanning.Unlock()
	maps.DeleteFunc(a.others, func(dir string, _ bool) bool { // folders that are gone
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
	a.refused = nil
	for i, dir := range a.dirs {
		a.news.Add(dir)
		folders, err := os.ReadDir(dir)
		if err != nil && !a.seen[dir] {
			a.refuse(dir, err)
		}
		for _, folder := range folders {
			if folder.IsDir() && a.follows(i, folder.Name()) {
				a.scan(filepath.Join(dir, folder.Name()))
			}
		}
	}
	if len(a.refused) > 0 { // tapes of an older version may stay for long
		a.settings.Log.Warn("tapes are not followed", "number", len(a.refused), "first", a.refused[0])
	}
}

// refuse notes why a tape, or the tapes of a folder, will not be followed. What doesn't exist may come.
func (a *Agent) refuse(path string, err error) {
	if !errors.Is(err, os.ErrNotExist) {
		a.seen[path] = true
		a.refused = append(a.refused, err)
	}
}

// follows tells whether the agent follows jobs of a name in the i-th of its directories. A process whose tape has no
// room in one directory writes it in the next, but has made the job's folder in the first.
func (a *Agent) follows(i int, job string) bool {
	if a.only != "" || a.all || i == 0 {
		return a.only == "" || a.only == job
	}
	_, err := os.Stat(filepath.Join(a.dirs[0], job))
	return err == nil
}

// scan looks for new tapes of a job, and follows those of running processes before those of ended ones.
func (a *Agent) scan(dir string) {
	if a.others[dir] && !a.mayFollow(dir) {
		return
	}
	a.news.Add(dir)
	running, ended := a.unseen(dir)
	if len(running)+len(ended) > 0 && !a.mayFollow(dir) {
		for _, t := range slices.Concat(running, ended) {
			_ = t.Close() // it was only read
		}
		return
	}
	var begun []*keptProcess
	for _, t := range running {
		begun = append(begun, a.follow(dir, t, true))
	}
	for _, t := range ended {
		h, j := t.Header(), a.jobs[dir]
		if h.Created.After(a.began.Add(-recentTime)) && !followed(dir, &h) || j != nil && h.Run != 0 && h.Run == j.run {
			begun = append(begun, a.follow(dir, t, false))
		} else {
			a.seen[t.Path()] = true
			_ = t.Close()
		}
	}
	for _, p := range begun { // once all are known, so that no verdict misses a rank
		if p != nil {
			a.jobs[dir].begin(p)
		}
	}
	if a.only == "" && a.jobs[dir] == nil && a.following[dir] != nil {
		a.letGo(dir)
	}
}

// unseen opens the tapes in a job's folder that may be followed and are not yet: those of running processes, and those
// of ended ones.
func (a *Agent) unseen(dir string) (running, ended []*tape.Kept) {
	entries, _ := os.ReadDir(dir) // if that fails, the folder is gone
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if filepath.Ext(path) != ".tape" || !entry.Type().IsRegular() || a.seen[path] {
			continue
		}
		t, err := tape.OpenKept(path)
		if err != nil {
			a.refuse(path, err)
			continue
		}
		h := t.Header()
		switch life := t.Liveness(); {
		case h.Watched:
			a.seen[path] = true
		case life == process.Unknown && (!h.Closed || h.KernelBoot != process.Self().BootID):
			a.refuse(path, fmt.Errorf("the process of %s is on another host, or in a pid namespace that is not below "+
				"this one", path))
		case life == process.Dead || h.Closed:
			ended = append(ended, t)
			continue
		default:
			running = append(running, t)
			continue
		}
		_ = t.Close() // it was only read
	}
	return running, ended
}

// follow makes the follower of a process's tape; nil if that fails. begin starts it.
func (a *Agent) follow(dir string, t *tape.Kept, runs bool) *keptProcess {
	a.seen[t.Path()] = true
	j, err := a.jobOf(dir, t)
	if err == nil {
		var p *keptProcess
		if p, err = j.follow(t, runs); err == nil {
			return p
		}
	}
	a.refuse(t.Path(), errors.Join(fmt.Errorf("%s: %w", t.Path(), err), t.Close()))
	return nil
}

// jobOf returns the job with the folder dir, which it makes from the first of its tapes.
func (a *Agent) jobOf(dir string, first *tape.Kept) (*keptJob, error) {
	if j := a.jobs[dir]; j != nil {
		return j, nil
	}
	j, err := a.newJob(dir, first.Header())
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs[dir] = j
	return j, nil
}

// mayFollow tells whether no other agent on this host follows the job with the folder dir, and locks others out until
// letGo. If locking is impossible, others are not locked out.
func (a *Agent) mayFollow(dir string) bool {
	if a.following[dir] != nil {
		return true
	}
	f, err := tape.FollowJob(dir)
	if errors.Is(err, tape.ErrFollowed) {
		if !a.others[dir] {
			a.others[dir] = true
			a.settings.Log.Info("another agent on this host follows the job", "job", filepath.Base(dir))
		}
		return false
	}
	delete(a.others, dir)
	a.following[dir] = f
	return true
}

// letGo lets other agents follow the job with the folder dir.
func (a *Agent) letGo(dir string) {
	_ = a.following[dir].Close() // the lock is released even on an error
	delete(a.following, dir)
	for _, d := range a.dirs { // its processes made a folder in each directory, until one had room
		_ = os.Remove(filepath.Join(d, filepath.Base(dir))) // fails unless it is empty; no sweep removes it then
	}
}

// forget ends jobs whose processes have all ended.
func (a *Agent) forget(ctx context.Context) {
	a.scanning.Lock()
	defer a.scanning.Unlock()
	for _, j := range a.list() {
		if !j.over() {
			continue
		}
		a.mu.Lock()
		delete(a.jobs, j.dir)
		a.mu.Unlock()
		if err := j.close(ctx); err != nil && ctx.Err() == nil {
			a.settings.Log.Warn("following a job did not end in order", "job", j.name, "error", err)
		}
		if a.only == "" { // else the job stays this agent's: more processes may begin
			a.letGo(j.dir)
		}
	}
}
