package words

import (
	"fmt"
	"slices"
	"strings"
)

// Name is the name of one of a type's values. A value without a name, as a later version may write it, is "kind(7)".
func Name[T ~uint8](kind string, names []string, value T) string {
	if int(value) < len(names) {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(value))
}

// Named returns the value with a name: it is the reverse of Name. The error lists the names.
func Named[T ~uint8](kind string, names []string, name string) (T, error) {
	if i := slices.Index(names, name); i >= 0 {
		return T(i), nil
	}
	return 0, fmt.Errorf("%.64q is no %s: allowed are %s", name, kind, strings.Join(names, ", "))
}
