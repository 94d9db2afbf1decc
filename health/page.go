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
)

// maxRows bounds the tables of the page; the documents have the rest.
const maxRows = 200

//go:embed page.html
var pageHTML string

// page is what is at /: how things are, and what else there is to see. It has no scripts and loads nothing.
type page struct {
	server   *Server
	template *template.Template
	policy   string
	entries  []indexEntry
	probe    *probe
}

type indexEntry struct{ Path, Title string }

func newPage(s *Server) *page {
	_, rest, _ := strings.Cut(pageHTML, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	hash := sha256.Sum256([]byte(style))
	return &page{
		server: s,
		template: template.Must(template.New("page").Funcs(template.FuncMap{
			"ago":   func(t time.Time) string { return ago(time.Since(t)) },
			"bytes": humanize.IBytes,
			"age":   func(seconds float64) string { return ago(time.Duration(seconds * float64(time.Second))) },
			"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		}).Parse(pageHTML)),
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
			"'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
	}
}

func (x *page) add(path, title string) { x.entries = append(x.entries, indexEntry{path, title}) }

// accepts tells whether a route can be mounted beside those that are there.
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
	Well          int
	Said          []Result // those of them that say something
	Shown, Silent []Condition
	Snapshot      *Snapshot // nil: nothing was published
	Ranks         []Rank    // the first ones, those that aren't alive before the others
	Comms         []Comm    // the first ones, those that are in an operation before the others
	Alive         int
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
	for _, result := range results {
		if result.Err != nil {
			v.Failed = append(v.Failed, result)
		} else {
			v.Well++
			if result.Text != "" {
				v.Said = append(v.Said, result)
			}
		}
	}
	for _, c := range x.server.cfg.Conditions.List() {
		if c.Silent() {
			v.Silent = append(v.Silent, c)
		} else {
			v.Shown = append(v.Shown, c)
		}
	}
	v.Shown, v.Silent = v.Shown[:min(len(v.Shown), maxRows)], v.Silent[:min(len(v.Silent), maxRows)]
	worst := &Snapshot{Conditions: v.Shown}
	if p := x.server.cfg.Publisher; p != nil {
		v.Snapshot = p.Last()
	}
	if v.Snapshot != nil {
		worst.Verdicts = v.Snapshot.Verdicts
		v.Ranks = firstRows(v.Snapshot.Ranks, func(r *Rank) bool { return r.State != "alive" })
		v.Comms = firstRows(v.Snapshot.Comms, func(c *Comm) bool { return c.InFlight != nil })
		for i := range v.Snapshot.Ranks {
			if v.Snapshot.Ranks[i].State == "alive" {
				v.Alive++
			}
		}
	}
	v.Status = worst.Status()
	if len(v.Failed) > 0 && v.Status == "ok" {
		v.Status = bus.Warning.String()
	}
}

// firstRows are the rows that a person should see: those that matter, then others, in their order.
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
