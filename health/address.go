package health

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// addressSuffix replaces the tape's suffix in the name of the file with the address of the process's endpoint.
const addressSuffix = ".health"

// maxAddress bounds the size of such a file.
const maxAddress = 4 << 10

// WriteAddress writes the URL of a process's endpoint to a file beside its tape. remove removes the file. If the
// process is killed, the file stays, so a reader must check whether the process is running.
func WriteAddress(tapePath, url string) (remove func() error, err error) {
	remove, err = WriteBeside(strings.TrimSuffix(tapePath, filepath.Ext(tapePath)), addressSuffix, url)
	if err != nil {
		return nil, fmt.Errorf("health: write the endpoint's address: %w", err)
	}
	return remove, nil
}

// WriteBeside atomically writes a line to a file beside a process's tape. name is the tape's without its suffix. remove
// removes the file.
func WriteBeside(name, suffix, line string) (remove func() error, err error) {
	path := name + suffix
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temp, []byte(line+"\n"), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(temp, path); err != nil {
		return nil, errors.Join(err, os.Remove(temp))
	}
	return func() error { return os.Remove(path) }, nil
}

// ReadAddress is the URL of the health endpoint of the process that wrote a tape, without a slash at its end. It has a
// path if it is part of a carillon agent's endpoint. os.ErrNotExist means that there is no endpoint.
func ReadAddress(tapePath string) (string, error) {
	path := strings.TrimSuffix(tapePath, filepath.Ext(tapePath)) + addressSuffix
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxAddress {
		return "", fmt.Errorf("health: %s is not a file with an address", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(strings.TrimSpace(string(text)))
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("health: %s has %.100q, which is not the URL of an endpoint", path, text)
	}
	return u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"), nil
}
