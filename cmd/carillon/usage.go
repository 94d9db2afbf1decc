package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError tells in a sentence what is wrong with a flag, and what is allowed.
func flagError(cmd *cobra.Command, err error) error {
	var (
		none   *pflag.NotExistError
		bare   *pflag.ValueRequiredError
		wrong  *pflag.InvalidValueError
		syntax *pflag.InvalidSyntaxError
	)
	switch {
	case errors.As(err, &none):
		name := "--" + none.GetSpecifiedName()
		if none.GetSpecifiedShortnames() != "" {
			name = "-" + none.GetSpecifiedName()
		}
		err = fmt.Errorf("there is no flag %s%s", name, near(cmd, none.GetSpecifiedName()))
	case errors.As(err, &bare):
		err = fmt.Errorf("--%s needs a value: %s", bare.GetFlag().Name, bare.GetFlag().Usage)
	case errors.As(err, &wrong):
		allowed, known := values[wrong.GetFlag().Value.Type()]
		if !known { // a type of this command's own, whose error says what is allowed
			err = fmt.Errorf("--%s is %q, %w", wrong.GetFlag().Name, wrong.GetValue(), wrong.Unwrap())
			break
		}
		err = fmt.Errorf("--%s is %q, allowed is %s", wrong.GetFlag().Name, wrong.GetValue(), allowed)
	case errors.As(err, &syntax):
		err = fmt.Errorf("%q is not a flag", syntax.GetSpecifiedFlag())
	}
	return usageError(cmd, err)
}

// values are the allowed values of flags, by pflag's names of their types.
var values = map[string]string{
	"bool": "true or false", "duration": "a duration with its unit, such as 500ms, 10s or 2m",
	"int": "a whole number", "uint64": "a whole number from 0 on", "intSlice": "whole numbers with commas between them",
}

// near suggests flags with a similar name, or whose name contains this one.
func near(cmd *cobra.Command, name string) string {
	type flag struct {
		text     string
		distance int
	}
	var alike []flag
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := levenshtein.Distance(name, f.Name, nil)
		if !f.Hidden && len(name) > 1 && (3*d <= len(name) || strings.Contains(f.Name, name)) {
			alike = append(alike, flag{fmt.Sprintf("--%s (%s)", f.Name, f.Usage), d})
		}
	})
	slices.SortStableFunc(alike, func(a, b flag) int { return a.distance - b.distance })
	var texts []string
	for _, f := range alike {
		texts = append(texts, f.text)
	}
	return suggest(texts)
}

func suggest(candidates []string) string {
	if len(candidates) == 0 {
		return ""
	}
	return "; did you mean " + english.OxfordWordSeries(candidates, "or") + "?"
}

// usageError is the error of a wrong use of a command, with the command that shows its help.
func usageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
}

// allow returns nil if ok is set; else an error that says which values of the flag are allowed.
func allow(ok bool, flag string, value any, allowed string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s is %v, allowed is %s", flag, value, allowed)
}

// atMost allows up to n arguments. takes describes them: "at most one job".
func atMost(n int, takes string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		return usageError(cmd, fmt.Errorf("unexpected argument %q: it takes %s", args[n], takes))
	}
}

var (
	noArguments = atMost(0, "no arguments")
	oneJob      = atMost(1, "at most one job")
)

// noCommand refuses arguments of the root command: they are not the name of any command.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError(root, fmt.Errorf("there is no command %q%s", args[0], suggest(root.SuggestionsFor(args[0]))))
}
