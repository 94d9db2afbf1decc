package health

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// index is the page at /: what there is to see.
type index struct {
	title   string
	entries []indexEntry
}

type indexEntry struct{ path, title string }

func (x *index) add(path, title string) { x.entries = append(x.entries, indexEntry{path, title}) }

// accepts tells whether a route can be mounted beside those that are there.
func (x *index) accepts(route Route) error {
	if route.Handler == nil {
		return fmt.Errorf("health: route %q has no handler", route.Path)
	}
	if !strings.HasPrefix(route.Path, "/") || route.Path == "/" || strings.ContainsAny(route.Path, " {}%") {
		return fmt.Errorf("health: route %q: a path starts with / and has no blanks, braces or escapes", route.Path)
	}
	for _, e := range x.entries {
		if e.path == route.Path || strings.HasPrefix(route.Path, e.path+"/") {
			return fmt.Errorf("health: route %q is taken by %q", route.Path, e.path)
		}
	}
	return nil
}

// ServeHTTP writes the page.
func (x *index) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	title := x.title
	if title == "" {
		title = "Carillon"
	}
	var page strings.Builder
	fmt.Fprintf(&page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%[1]s</title></head>\n<body><h1>%[1]s</h1>\n<ul>\n",
		html.EscapeString(title))
	for _, e := range x.entries {
		fmt.Fprintf(&page, "<li><a href=\"%[1]s\">%[1]s</a>: %[2]s</li>\n", html.EscapeString(e.path), html.EscapeString(e.title))
	}
	page.WriteString("</ul></body></html>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(page.String())) // the client went away; there is nobody to tell
}
