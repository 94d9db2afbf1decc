package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// probe serves the checks of a kind, in the format of a Kubernetes API server.
type probe struct {
	name     string // "readyz"
	kind     Kind
	registry *Registry
	// conditions count for readiness; nil is none.
	conditions *Conditions
}

// run runs the checks and adds the conditions, except those to leave out. The results are in the order of names.
func (p *probe) run(ctx context.Context, leaveOut func(name string) bool) []Result {
	results := p.registry.Run(ctx, p.kind, leaveOut)
	if p.kind&Ready == 0 {
		return results
	}
	for _, r := range p.conditions.checks() {
		if leaveOut == nil || !leaveOut(r.Name) {
			results = append(results, r)
		}
	}
	slices.SortStableFunc(results, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	return results
}

// report is a probe's full answer.
type report struct {
	Status     string      `json:"status"` // "ok" or "failed"
	Checks     []checkJSON `json:"checks"`
	Conditions []Condition `json:"conditions,omitempty"` // open ones, if readiness was asked for
	Warnings   []string    `json:"warnings,omitempty"`   // about the request
}

type checkJSON struct {
	Name   string `json:"name"`
	Status string `json:"status"` // "ok", "failed" or "excluded"
	Error  string `json:"error,omitempty"`
	Text   string `json:"text,omitempty"` // of a passed check
}

func newReport(results []Result) *report {
	r := &report{Status: "ok", Checks: make([]checkJSON, 0, len(results))}
	for _, result := range results {
		c := checkJSON{Name: result.Name, Status: "ok", Text: words.Line(result.Text)}
		if result.Err != nil {
			c.Status, c.Error = "failed", words.Line(result.Err.Error())
			r.Status = "failed"
		}
		r.Checks = append(r.Checks, c)
	}
	return r
}

func (r *report) code() int {
	if r.Status != "ok" {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// all serves all checks: "ok" and 200, or the failed ones and 503.
func (p *probe) all(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	excluded := make(map[string]bool)
	for _, name := range query["exclude"] {
		excluded[name] = false // becomes true when a check of that name is left out
	}
	report := newReport(p.run(r.Context(), func(name string) bool {
		if _, ok := excluded[name]; ok {
			excluded[name] = true
			return true
		}
		return false
	}))
	for name, met := range excluded {
		if met {
			report.Checks = append(report.Checks, checkJSON{Name: name, Status: "excluded"})
		} else {
			report.Warnings = append(report.Warnings, fmt.Sprintf("no check named %q was excluded", name))
		}
	}
	slices.SortStableFunc(report.Checks, func(a, b checkJSON) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(report.Warnings)
	if p.kind&Ready != 0 {
		report.Conditions = p.conditions.List()
	}

	_, verbose := query["verbose"]
	report.answer(w, r, verbose, func() string { return report.text(p.name) })
}

// answer writes the report: as JSON if that is wanted, as text if a check failed or verbose is set, otherwise as "ok".
func (r *report) answer(w http.ResponseWriter, request *http.Request, verbose bool, text func() string) {
	switch {
	case wantsJSON(request):
		body, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			respond(w, http.StatusInternalServerError, err.Error()+"\n")
			return
		}
		write(w, r.code(), typeJSON, append(body, '\n'))
	case verbose || r.code() != http.StatusOK:
		respond(w, r.code(), text())
	default:
		respond(w, http.StatusOK, "ok")
	}
}

// one serves the check that the path names.
func (p *probe) one(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("check")
	results := p.run(r.Context(), func(other string) bool { return other != name })
	if len(results) == 0 {
		respond(w, http.StatusNotFound, fmt.Sprintf("no check named %q; /%s?verbose lists them\n", name, p.name))
		return
	}
	report := newReport(results) // a check and a condition may have one name
	report.answer(w, r, false, func() string { return report.lines("failed") })
}

// yesOrNo serves clients without access.
func (p *probe) yesOrNo(w http.ResponseWriter, r *http.Request) {
	body, code := "ok", newReport(p.run(r.Context(), nil)).code()
	if code != http.StatusOK {
		body = "not ok"
	}
	respond(w, code, body)
}

// text is the report for a person, in Kubernetes' format.
func (r *report) text(probe string) string {
	var body strings.Builder
	body.WriteString(r.lines("ok", "failed") + r.lines("excluded"))
	for i := range r.Conditions {
		if c := r.Conditions[i]; !c.Silent() && !c.NotReady { // the others are among the checks
			fmt.Fprintf(&body, "%s: %s\n", c.Severity, c)
		}
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&body, "warn: %s\n", warning)
	}
	outcome := "passed"
	if r.Status != "ok" {
		outcome = "failed"
	}
	fmt.Fprintf(&body, "%s check %s\n", probe, outcome)
	return body.String()
}

func (r *report) lines(statuses ...string) string {
	var w strings.Builder
	for _, c := range r.Checks {
		switch {
		case !slices.Contains(statuses, c.Status):
		case c.Status == "failed":
			fmt.Fprintf(&w, "[-]%s failed: %s\n", c.Name, c.Error)
		case c.Status == "excluded":
			fmt.Fprintf(&w, "[+]%s excluded: ok\n", words.Line(c.Name))
		case c.Text != "":
			fmt.Fprintf(&w, "[+]%s ok: %s\n", c.Name, c.Text)
		default:
			fmt.Fprintf(&w, "[+]%s ok\n", c.Name)
		}
	}
	return w.String()
}

// wantsJSON tells whether the client asks for JSON, by ?format=json or by what it accepts.
func wantsJSON(r *http.Request) bool {
	if format := r.URL.Query().Get("format"); format != "" {
		return format == "json"
	}
	for _, accept := range r.Header["Accept"] {
		for kind := range strings.SplitSeq(accept, ",") {
			kind, params, _ := strings.Cut(kind, ";")
			if strings.EqualFold(strings.TrimSpace(kind), "application/json") &&
				strings.ReplaceAll(params, " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}

func respond(w http.ResponseWriter, status int, body string) {
	write(w, status, typeText, []byte(body))
}

func write(w http.ResponseWriter, status int, kind []string, body []byte) {
	header := w.Header()
	header["Content-Type"], header["X-Content-Type-Options"] = kind, noSniff
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails if the client has gone
}
