package launch

import (
	"errors"
	"fmt"
	"strings"
)

// maxHostlist bounds what is parsed; Slurm's own limit for a node list in the environment is below.
const maxHostlist = 1 << 16

// FirstHost returns the first host of a list in Slurm's notation, where brackets hold numbers and ranges that each
// stand for one name: "n[01-03,7],login" are n01, n02, n03, n7 and login, and "r[1-2]n[1-4]" starts with r1n1. The
// whole list is checked, so that a list that was cut off is not taken for a whole one.
func FirstHost(list string) (string, error) {
	if len(list) > maxHostlist {
		return "", fmt.Errorf("a list of hosts of %d bytes; at most %d are read", len(list), maxHostlist)
	}
	first := ""
	for rest := list; ; {
		host, tail, more, err := nextHost(rest)
		if err != nil {
			return "", err
		}
		if first == "" {
			first = host
		}
		if !more {
			return first, nil
		}
		rest = tail
	}
}

// nextHost reads the element of the list up to a comma outside of brackets, and returns its first name.
func nextHost(list string) (first, rest string, more bool, err error) {
	var name strings.Builder
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == ',':
			rest, more = list[i+1:], true
			i = len(list)
		case c == '[':
			end := strings.IndexByte(list[i:], ']')
			if end < 0 {
				return "", "", false, errors.New("a bracket is not closed")
			}
			number, err := firstNumber(list[i+1 : i+end])
			if err != nil {
				return "", "", false, err
			}
			name.WriteString(number)
			i += end
		case c == '-' || c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			name.WriteByte(c)
		default:
			return "", "", false, fmt.Errorf("%q is no part of a host's name", c)
		}
	}
	if name.Len() == 0 {
		return "", "", false, errors.New("a host's name is empty")
	}
	return name.String(), rest, more, nil
}

// firstNumber returns the first of "01-03,7", with its zeros.
func firstNumber(ranges string) (string, error) {
	first := ""
	for item := range strings.SplitSeq(ranges, ",") {
		low, high, ranged := strings.Cut(item, "-")
		if !isNumber(low) || ranged && !isNumber(high) {
			return "", fmt.Errorf("%q in brackets is neither a number nor a range of numbers", item)
		}
		if ranged && compareNumbers(low, high) > 0 {
			return "", fmt.Errorf("the range %q goes down", item)
		}
		if first == "" {
			first = low
		}
	}
	return first, nil
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// compareNumbers compares numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
