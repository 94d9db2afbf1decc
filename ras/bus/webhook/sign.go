package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp" // seconds since 1970
	HeaderSignature = "Webhook-Signature" // "v1," and the HMAC in base64, one for each secret, with blanks between
)

// Tolerance is how far a signature's time may be from the receiver's. Older ones may be replayed.
const Tolerance = 5 * time.Minute

// maxSignatures bounds the signatures of one request that Verify looks at.
const maxSignatures = 16

// ErrSignature says that a request was not signed with the secret, or not just now.
var ErrSignature = errors.New("webhook: the signature is not valid")

func sign(header http.Header, id string, now time.Time, body []byte, secrets [][]byte) {
	header.Set(HeaderID, id)
	stamp := strconv.FormatInt(now.Unix(), 10)
	header.Set(HeaderTimestamp, stamp)
	if len(secrets) == 0 {
		return
	}
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac(secret, id, stamp, body))
	}
	header.Set(HeaderSignature, strings.Join(signatures, " "))
}

func mac(secret []byte, id, stamp string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(h, "%s.%s.", id, stamp)
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// Verify tells whether a request's body was signed with one of the secrets, within Tolerance of now. The error wraps
// ErrSignature. It takes constant time for a signature. A receiver remembers the ids it has seen for as long as
// Tolerance, if it must not act twice.
func Verify(header http.Header, body []byte, now time.Time, secrets ...[]byte) error {
	id, stamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || id == "" {
		return fmt.Errorf("%w: %s or %s is missing or malformed", ErrSignature, HeaderID, HeaderTimestamp)
	}
	if age := now.Unix() - seconds; age > int64(Tolerance/time.Second) || age < -int64(Tolerance/time.Second) {
		return fmt.Errorf("%w: it is %d seconds old, allowed are %d", ErrSignature, age, int64(Tolerance/time.Second))
	}
	signatures := strings.Fields(header.Get(HeaderSignature))
	for _, signature := range signatures[:min(len(signatures), maxSignatures)] {
		version, encoded, _ := strings.Cut(signature, ",")
		got, err := base64.StdEncoding.DecodeString(encoded)
		if version != "v1" || err != nil {
			continue
		}
		for _, secret := range secrets {
			if hmac.Equal(got, mac(secret, id, stamp, body)) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no secret fits", ErrSignature)
}
