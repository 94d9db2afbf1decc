package health

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// maxRows bounds the tables of the page; the documents have the rest.
const maxRows = 200

//go:embed page.html
var pageHTML string

// page is the page at /: the state of the job and an index of the routes. It loads nothing; its script updates ages.
type page struct {
	server   *Server
	template *template.Template
	policy   string
	entries  []indexEntry
	probe    *probe
}

type indexEntry struct{ Path, Title string }

func newPage(s *Server) *page {
	return &page{
		server: s,
		template: template.Must(template.New("page").Funcs(template.FuncMap{
			"ago":      func(t time.Time) template.HTML { return running(time.Since(t)) },
			"bytes":    humanize.IBytes,
			"captured": words.Captured,
			"age": func(seconds float64, as time.Time) template.HTML {
				return running(time.Duration(seconds*float64(time.Second)) + time.Since(as))
			},
			"sentence": sentence,
			"stamp":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		}).Parse(pageHTML)),
		policy: "default-src 'none'; style-src " + hashOf("style") + "; script-src " + hashOf("script") +
			"; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
	}
}

// hashOf is the hash of an element's text, for the Content-Security-Policy.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(pageHTML, "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	hash := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// running is an age that the page's script updates.
func running(age time.Duration) template.HTML {
	age = max(age, 0)
	return template.HTML(fmt.Sprintf(`<span data-age="%.2f">%s</span>`, age.Seconds(), ago(age)))
}

// sentence is a verdict's sentence. Its ages were right at the time at.
func sentence(text verdict.Text, at time.Time) template.HTML {
	return template.HTML(text.After(time.Since(at)).Format(template.HTMLEscapeString,
		func(a verdict.Age) string { return string(running(time.Duration(a))) }))
}

func (x *page) add(path, title string) { x.entries = append(x.entries, indexEntry{path, title}) }

// accepts checks that a route is well-formed and free.
func (x *page) accepts(route Route) error {
	if route.Handler == nil {
		return fmt.Errorf("health: route %q has no handler", route.Path)
	}
	if !strings.HasPrefix(route.Path, "/") || route.Path == "/" || strings.ContainsAny(route.Path, " {}%") {
		return fmt.Errorf("health: route %q: a path starts with / and has no blanks, braces or escapes", route.Path)
	}
	for _, e := range x.entries {
		if e.Path == route.Path || strings.HasPrefix(route.Path, e.Path+"/") {
			return fmt.Errorf("health: route %q is taken by %q", route.Path, e.Path)
		}
	}
	return nil
}

type view struct {
	Title, Status string
	Failed        []Result
	Above         []string // failed checks that are shown as a verdict or a condition
	Well          int
	Said          []Result // passed checks with a text
	Shown, Silent []Condition
	Snapshot      *Snapshot // nil if none was published
	Ranks         []Rank    // at most maxRows; preferably those that aren't alive
	Comms         []Comm    // at most maxRows; preferably those in an operation
	Alive         int
	Jobs          bool // there are several; the tables show the job
	Entries       []indexEntry
}

// ServeHTTP writes the page.
func (x *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &view{Title: cmp.Or(x.server.cfg.Title, "Carillon"), Entries: x.entries}
	x.look(v, x.probe.run(r.Context(), nil))
	var body bytes.Buffer
	if err := x.template.Execute(&body, v); err != nil {
		respond(w, http.StatusInternalServerError, fmt.Sprintf("the page can't be made: %v\n", err))
		return
	}
	w.Header().Set("Content-Security-Policy", x.policy)
	w.Header().Set("Referrer-Policy", "no-referrer")
	write(w, http.StatusOK, typeHTML, body.Bytes())
}

func (x *page) look(v *view, results []Result) {
	conditions := x.server.cfg.Conditions.List()
	for _, result := range results {
		isShown := func(c Condition) bool { return c.Code == result.Name }
		switch {
		case result.Err != nil && slices.ContainsFunc(conditions, isShown):
			v.Above = append(v.Above, result.Name)
		case result.Err != nil:
			v.Failed = append(v.Failed, result)
		default:
			v.Well++
			if result.Text != "" {
				v.Said = append(v.Said, result)
			}
		}
	}
	var verdicts []Verdict
	if p := x.server.cfg.Publisher; p != nil {
		if v.Snapshot = p.Last(); v.Snapshot != nil {
			verdicts = v.Snapshot.Verdicts
		}
	}
	for _, c := range conditions {
		switch {
		case slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.ID == c.Subject }): // shown itself
		case c.Silent():
			v.Silent = append(v.Silent, c)
		default:
			v.Shown = append(v.Shown, c)
		}
	}
	v.Shown, v.Silent = v.Shown[:min(len(v.Shown), maxRows)], v.Silent[:min(len(v.Silent), maxRows)]
	worst := &Snapshot{Conditions: v.Shown, Verdicts: verdicts}
	if v.Snapshot != nil {
		v.Ranks = firstRows(v.Snapshot.Ranks,
			func(r *Rank) bool { return r.State != "alive" || v.Culprit(*r) != "" })
		v.Jobs = len(v.Snapshot.Jobs()) > 1
		v.Comms = firstRows(v.Snapshot.Comms, func(c *Comm) bool { return c.InFlight != nil })
		for i := range v.Snapshot.Ranks {
			if v.Snapshot.Ranks[i].State == "alive" {
				v.Alive++
			}
		}
	}
	v.Status = worst.Status()
	if len(v.Failed)+len(v.Above) > 0 && v.Status == "ok" {
		v.Status = bus.Warning.String()
	}
}

// Culprit is the reason of the verdict that names rank r as a culprit; empty if none does.
func (v *view) Culprit(r Rank) string {
	for i := range v.Snapshot.Verdicts {
		if open := &v.Snapshot.Verdicts[i]; open.Names(&r) {
			return open.Reason.String()
		}
	}
	return ""
}

// firstRows returns at most maxRows rows: first those that matter, then the others, both in order.
func firstRows[T any](all []T, matters func(*T) bool) []T {
	if len(all) <= maxRows {
		return all
	}
	rows := make([]T, 0, maxRows)
	for _, first := range []bool{true, false} {
		for i := range all {
			if len(rows) < maxRows && matters(&all[i]) == first {
				rows = append(rows, all[i])
			}
		}
	}
	return slices.Clip(rows)
}

func ago(d time.Duration) string { return words.Round(max(d, 0)).String() }
