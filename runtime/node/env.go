package node

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	"github.com/caarlos0/env/v11"

	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/logsink"
)

// FromEnv reads the process's environment: CARILLON_… variables, NCCL's, and the launcher's (see package launch).
// Variables that are not set change nothing. The error names all problems at once. An unknown CARILLON_… variable is
// ignored with a warning.
func FromEnv() Option {
	return func(c *Config) error {
		c.unknown = unknown(os.Environ())
		return FromEnviron(os.Getenv)(c)
	}
}

// FromEnviron is FromEnv with another environment.
func FromEnviron(getenv func(string) string) Option {
	return func(c *Config) error {
		world, err := launch.FromEnv(getenv)
		errs := []error{err}
		c.World, c.applied = world, nil
		for _, key := range []string{keyNCCL, keyEnv} { // the later overrides the earlier
			for _, v := range variables(reflect.TypeFor[Config]()) {
				v.value = getenv(v.name)
				if v.key != key || v.value == "" || v.name == "NCCL_DEBUG" && getenv("CARILLON_LOG") != "" {
					continue
				}
				c.LogVersion = c.LogVersion || v.name == "NCCL_DEBUG"
				c.applied = append(c.applied, v)
				if err := v.set(c); err != nil {
					errs = append(errs, v.problem(err))
				}
			}
		}
		if strings.EqualFold(c.Health, "off") {
			c.Health = ""
		}
		for _, p := range c.problems() { // those of fields that no variable sets are named by Validate
			for _, v := range slices.Backward(c.applied) {
				if v.field == p.Field {
					errs = append(errs, v.problem(errors.New(p.Allowed)))
					break
				}
			}
		}
		return errors.Join(errs...)
	}
}

// The keys of tags that name a variable.
const (
	keyEnv  = "env"
	keyNCCL = "nccl" // a second variable, which the first overrides
	keyFile = "file" // a variable with the path of a file, in package launch
)

// variable is an environment variable of a field's tag.
type variable struct {
	name, key, field string
	secret           bool // its value is not shown
	value            string
}

// variables returns the variables of a struct's fields, in their order.
func variables(t reflect.Type) []variable {
	var all []variable
	for f := range t.Fields() {
		if f.Tag.Get(keyEnv) == "-" || !f.IsExported() {
			continue
		}
		for _, key := range []string{keyEnv, keyNCCL, keyFile} {
			if name := f.Tag.Get(key); name != "" {
				all = append(all, variable{name: name, key: key, field: f.Name, secret: f.Tag.Get("secret") != ""})
			}
		}
		if f.Type.Kind() == reflect.Struct {
			for _, v := range variables(f.Type) {
				v.field = f.Name + "." + v.field
				all = append(all, v)
			}
		}
	}
	return all
}

// set sets the variable's field.
func (v *variable) set(c *Config) error {
	err := env.ParseWithOptions(c, env.Options{
		TagName: v.key, Environment: map[string]string{v.name: v.value}, FuncMap: parsers(v.key),
	})
	if parse, ok := errors.AsType[env.ParseError](err); ok {
		return parse.Err
	}
	return err
}

func (v *variable) problem(err error) error {
	if v.secret {
		return fmt.Errorf("%s: %w", v.name, err)
	}
	return fmt.Errorf("%s=%q: %w", v.name, v.value, err)
}

// parsers read the types of fields.
func parsers(key string) map[reflect.Type]env.ParserFunc {
	level := logsink.ParseLevel
	if key == keyNCCL {
		level = logsink.ParseNCCLDebug
	}
	all := map[reflect.Type]env.ParserFunc{}
	add(all, func(v string) (string, error) { return strings.TrimSpace(v), nil })
	add(all, parseSwitch)
	add(all, choice(TapeOn, TapeOff, TapeRequired,
		"want on, off, or required (a process that gets none in its directory doesn't start)"))
	add(all, parseSize)
	add(all, parseDuration)
	add(all, choice(OwnGPUs, NoGPUs, AllGPUs, "want on (the process's own GPUs), all (of the host), or off"))
	add(all, parseNetworkName)
	add(all, algo.ParseAlgorithm)
	add(all, door.ParseWire)
	add(all, logsink.ParseSubsystems)
	add(all, logsink.ParseFormat)
	add(all, func(v string) (Level, error) {
		l, err := level(v)
		return Level(l), err
	})
	add(all, listOf(parseNetwork))
	add(all, listOf(parseSeed))
	return all
}

func add[T any](to map[reflect.Type]env.ParserFunc, parse func(string) (T, error)) {
	to[reflect.TypeFor[T]()] = func(v string) (any, error) { return parse(v) }
}

// listOf reads a list with commas between its entries.
func listOf[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) (all []T, err error) {
		for entry := range strings.SplitSeq(text, ",") {
			one, err := parse(strings.TrimSpace(entry))
			if err != nil {
				return nil, fmt.Errorf("%q: %w", entry, err)
			}
			all = append(all, one)
		}
		return all, nil
	}
}

func parseSwitch(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "1", "true", "on", "yes":
		return true, nil
	case "0", "false", "off", "no":
		return false, nil
	default:
		return false, errors.New("want 1, true, on, yes, or 0, false, off, no")
	}
}

// choice reads a switch that has a third position, by its name.
func choice[T ~string](on, off, third T, want string) func(string) (T, error) {
	return func(v string) (T, error) {
		if strings.EqualFold(v, string(third)) {
			return third, nil
		}
		switch is, err := parseSwitch(v); {
		case err != nil:
			return on, errors.New(want)
		case is:
			return on, nil
		default:
			return off, nil
		}
	}
}

func parseDuration(v string) (time.Duration, error) {
	if strings.EqualFold(v, "off") {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, errors.New("want a duration with its unit, such as 500ms or 5s, or off")
	}
	return d, nil
}

// parseNetwork reads "10.0.0.0/8", or an address, which is a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().Prefix(addr.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, errors.New("want addresses or networks with commas between them: 10.0.0.7,10.1.0.0/16")
	}
	return p.Masked(), nil
}

// parseSeed reads host:port, where the host may be a name.
func parseSeed(text string) (netip.AddrPort, error) {
	addr, err := net.ResolveUDPAddr("udp", text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("want host:port: %w", err)
	}
	seed := addr.AddrPort()
	return netip.AddrPortFrom(seed.Addr().Unmap(), seed.Port()), nil
}

// prefix begins the names of Carillon's own variables.
const prefix = "CARILLON_"

// attached are the variables without a field: those of carillon attach and its library, and those of the engines on
// GPUs.
var attached = []string{
	"CARILLON_GPU_TUNING", "CARILLON_GUARD", "CARILLON_NCCL_LIB", "CARILLON_NCCL_LIBRARY", "CARILLON_PROFILER_NEXT",
	"CARILLON_STREAM_MARKS",
}

// known are the names of Carillon's own variables, in alphabetical order.
func known() []string {
	names := slices.Clone(attached)
	for _, of := range []any{Config{}, launch.World{}} {
		for _, v := range variables(reflect.TypeOf(of)) {
			if strings.HasPrefix(v.name, prefix) {
				names = append(names, v.name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// service matches the variables that Kubernetes sets in all containers of a namespace that has a Service with a name
// such as carillon or carillon-ui.
var service = regexp.MustCompile(
	`_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// unknown returns a sentence for each variable of an environment, "NAME=value" each, that begins with prefix and isn't
// Carillon's: a misspelt one would be ignored silently.
func unknown(environ []string) []string {
	names := known()
	var said []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix) || value == "" || slices.Contains(names, name) ||
			service.MatchString(name) {
			continue
		}
		text := "ignored: " + name + ", which is none of Carillon's variables"
		distance := func(v string) int { return levenshtein.Distance(name, v, nil) }
		near := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
		if 3*distance(near) <= len(name)-len(prefix) {
			text += "; is " + near + " meant?"
		}
		said = append(said, text)
	}
	slices.Sort(said)
	return said
}
