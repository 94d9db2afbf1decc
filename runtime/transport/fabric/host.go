package fabric

import "os"

// hostName is for people, so it may be unknown.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "?"
	}
	return name[:min(len(name), maxHostName)]
}
