package health

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// AddressSuffix ends the name of the file beside a process's tape that says where its endpoint is. It stands in the place
// of the tape's own.
const AddressSuffix = ".health"

// maxAddress bounds such a file.
const maxAddress = 4 << 10

// WriteAddress lets who finds a process's tape find its endpoint, too: it writes the URL to a file beside it. remove takes
// that back; of a process that was killed the file stays, so that a reader first sees whether it lives.
func WriteAddress(tapePath, url string) (remove func() error, err error) {
	path := addressPath(tapePath)
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temp, []byte(url+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("health: tell where the endpoint is: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return nil, fmt.Errorf("health: tell where the endpoint is: %w", errors.Join(err, os.Remove(temp)))
	}
	return func() error { return os.Remove(path) }, nil
}

// ReadAddress is the URL of the endpoint of the process that has a tape, without a slash at its end. An error that is
// os.ErrNotExist means that it has none.
func ReadAddress(tapePath string) (string, error) {
	path := addressPath(tapePath)
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxAddress {
		return "", fmt.Errorf("health: %s is no file with an address", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(strings.TrimSpace(string(text)))
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("health: %s has %.100q, which is no URL of an endpoint", path, text)
	}
	return u.Scheme + "://" + u.Host, nil
}

func addressPath(tapePath string) string {
	return strings.TrimSuffix(tapePath, filepath.Ext(tapePath)) + AddressSuffix
}
