package bus

import (
	"strconv"
	"strings"
)

// FromStart is the After of a subscription that wants all that is remembered.
const FromStart = "0"

// epochDigits is the length of an epoch: the random part of all ids of one Bus, by which those of an earlier process
// are told apart.
const epochDigits = 16

func formatID(epoch string, seq uint64) string { return epoch + "-" + strconv.FormatUint(seq, 10) }

// parseID takes an id apart. It comes from a subscriber, who may send anything.
func parseID(id string) (epoch string, seq uint64, ok bool) {
	epoch, number, found := strings.Cut(id, "-")
	if !found || len(epoch) != epochDigits || number == "" || number[0] == '0' && number != "0" {
		return "", 0, false
	}
	for _, c := range []byte(epoch) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", 0, false
		}
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || number[0] == '+' {
		return "", 0, false
	}
	return epoch, seq, true
}
