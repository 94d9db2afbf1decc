package health

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// probe answers for the checks of a kind, as a Kubernetes API server does for its own.
type probe struct {
	name     string // "readyz"
	kind     Kind
	registry *Registry
	// conditions count for what asks for readiness; nil is none.
	conditions *Conditions
}

// run asks the checks, except those that are left out, and the conditions; the results are in the order of names.
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

// all answers for all checks: "ok" and 200, or the failing ones and 503.
func (p *probe) all(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	excluded := make(map[string]bool)
	for _, name := range query["exclude"] {
		excluded[name] = false // becomes true when a check of that name is left out
	}
	results := p.run(r.Context(), func(name string) bool {
		if _, ok := excluded[name]; ok {
			excluded[name] = true
			return true
		}
		return false
	})

	var body bytes.Buffer
	failed := false
	for _, result := range results {
		failed = failed || result.Err != nil
		writeResult(&body, result)
	}
	var unknown []string
	for name, met := range excluded {
		if met {
			fmt.Fprintf(&body, "[+]%s excluded: ok\n", oneLine(name))
		} else {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		fmt.Fprintf(&body, "warn: no check named %q was excluded\n", name)
	}

	switch _, verbose := query["verbose"]; {
	case failed:
		fmt.Fprintf(&body, "%s check failed\n", p.name)
		respond(w, http.StatusServiceUnavailable, body.String())
	case verbose:
		fmt.Fprintf(&body, "%s check passed\n", p.name)
		respond(w, http.StatusOK, body.String())
	default:
		respond(w, http.StatusOK, "ok")
	}
}

// one answers for the check that the path names.
func (p *probe) one(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("check")
	results := p.run(r.Context(), func(other string) bool { return other != name })
	var body bytes.Buffer
	for _, result := range results { // a check and a condition may have one name
		if result.Err != nil {
			writeResult(&body, result)
		}
	}
	switch {
	case len(results) == 0:
		respond(w, http.StatusNotFound, fmt.Sprintf("no check named %q; /%s?verbose lists them\n", name, p.name))
	case body.Len() > 0:
		respond(w, http.StatusServiceUnavailable, body.String())
	default:
		respond(w, http.StatusOK, "ok")
	}
}

func writeResult(w *bytes.Buffer, r Result) {
	if r.Err != nil {
		fmt.Fprintf(w, "[-]%s failed: %s\n", r.Name, oneLine(r.Err.Error()))
	} else {
		fmt.Fprintf(w, "[+]%s ok\n", r.Name)
	}
}

// oneLine keeps what others wrote from looking like lines of ours.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // the client went away; there is nobody to tell
}
