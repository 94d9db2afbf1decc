package ncclras

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const (
	maxLine = 1024 // of the protocol, with its end
	// handshakeTime is how long a process may be silent at first, as in NCCL's own client. A stopped process still
	// accepts connections; another process may answer the next attempt.
	handshakeTime = time.Second
	attempts      = 4
	// extraTime is what NCCL takes beyond TIMEOUT (RAS_COLLECTIVE_EXTRA_TIMEOUT), and the way back.
	extraTime = 6 * time.Second
)

// errSilent means that a process accepts connections but doesn't answer.
var errSilent = errors.New("it accepts the connection but doesn't answer: the process may be stopped")

// conn is a connection to one NCCL process, with bounded lines and times.
type conn struct {
	net.Conn
	in   *bufio.Reader
	stop func() bool // ends the watch of the context
}

// connect opens a connection and does the handshake. It checks Quiet before each attempt.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	var last error
	for range attempts {
		if !c.cfg.Quiet() {
			return nil, ErrNotQuiet
		}
		k, err := c.attempt(ctx)
		if err == nil {
			return k, nil
		}
		last = fmt.Errorf("ncclras: NCCL's RAS at %s: %w", c.cfg.Address, err)
		if !errors.Is(err, errSilent) || ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (c *Client) attempt(ctx context.Context) (*conn, error) {
	dialer := net.Dialer{Timeout: c.handshake, FallbackDelay: -1} // one connection, whatever addresses a name has
	raw, err := dialer.DialContext(ctx, "tcp", c.cfg.Address)
	if err != nil {
		return nil, err
	}
	k := &conn{Conn: raw, in: bufio.NewReaderSize(raw, maxLine)}
	k.stop = context.AfterFunc(ctx, func() { _ = raw.Close() }) // reads and writes then fail
	answer, err := k.say(c.handshake, "CLIENT PROTOCOL 2")
	if err == nil && !strings.HasPrefix(strings.ToUpper(answer), "SERVER PROTOCOL ") {
		err = fmt.Errorf("it answers %.64q, and NCCL's RAS would say SERVER PROTOCOL", answer)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errSilent
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *conn) close() {
	k.stop()
	_ = k.Close()
}

// say sends a command and returns the line that answers it.
func (k *conn) say(within time.Duration, command string) (string, error) {
	if err := k.send(within, command); err != nil {
		return "", err
	}
	answer, err := k.line()
	if errors.Is(err, io.EOF) {
		return "", fmt.Errorf("it ended the connection at %q: %w", command, io.ErrUnexpectedEOF)
	}
	return answer, err
}

// send sends a command, and sets the deadline for its answer.
func (k *conn) send(within time.Duration, command string) error {
	if err := k.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := io.WriteString(k, command+"\n")
	return err
}

// order sends a command whose answer must be OK.
func (k *conn) order(within time.Duration, command string) error {
	answer, err := k.say(within, command)
	if err == nil && !strings.EqualFold(answer, "OK") {
		return &RefusedError{Command: command, Answer: answer}
	}
	return err
}

// RefusedError means that NCCL refused a command.
type RefusedError struct{ Command, Answer string }

// Error has the command and NCCL's answer.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("ncclras: NCCL answers %q with %.128q", e.Command, e.Answer)
}

// errLine means that a line is longer than the protocol allows.
var errLine = fmt.Errorf("a line of more than %d bytes", maxLine)

// line reads a line, without its end.
func (k *conn) line() (string, error) {
	line, err := k.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errLine
	case err != nil:
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}
