package prometheus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// labelsOf returns the labels that the result of an expression can have, and the metrics and labels in it that aren't
// exported.
func (n names) labelsOf(e parser.Expr) (map[string]bool, []string) {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return n.ofSelector(e)
	case *parser.MatrixSelector:
		return n.labelsOf(e.VectorSelector)
	case *parser.SubqueryExpr:
		return n.labelsOf(e.Expr)
	case *parser.ParenExpr:
		return n.labelsOf(e.Expr)
	case *parser.UnaryExpr:
		return n.labelsOf(e.Expr)
	case *parser.StepInvariantExpr:
		return n.labelsOf(e.Expr)
	case *parser.AggregateExpr:
		return n.ofAggregate(e)
	case *parser.BinaryExpr:
		return n.ofBinary(e)
	case *parser.Call:
		return n.ofCall(e)
	default: // a number or a string
		return nil, nil
	}
}

func (n names) ofSelector(e *parser.VectorSelector) (map[string]bool, []string) {
	has, known := n[e.Name]
	if !known {
		return nil, []string{fmt.Sprintf("no process exports %q", e.Name)}
	}
	var problems []string
	for _, m := range e.LabelMatchers {
		if m.Name != model.MetricNameLabel && !has[m.Name] {
			problems = append(problems, fmt.Sprintf("%s has no label %q", e.Name, m.Name))
		}
	}
	return has, problems
}

func (n names) ofAggregate(e *parser.AggregateExpr) (map[string]bool, []string) {
	inner, problems := n.labelsOf(e.Expr)
	for _, l := range e.Grouping {
		if !inner[l] {
			problems = append(problems, fmt.Sprintf("%s has no label %q to group by", e.Expr, l))
		}
	}
	out := map[string]bool{}
	for l := range inner {
		if slices.Contains(e.Grouping, l) != e.Without {
			out[l] = true
		}
	}
	return out, problems
}

func (n names) ofBinary(e *parser.BinaryExpr) (map[string]bool, []string) {
	left, problems := n.labelsOf(e.LHS)
	right, more := n.labelsOf(e.RHS)
	problems = append(problems, more...)
	if e.VectorMatching == nil { // one side is a number
		if left == nil {
			return right, problems
		}
		return left, problems
	}
	for _, l := range append(slices.Clone(e.VectorMatching.MatchingLabels), e.VectorMatching.Include...) {
		if !left[l] || !right[l] {
			problems = append(problems, fmt.Sprintf("not both sides of %q have the label %q", e, l))
		}
	}
	out := maps.Clone(left)
	switch {
	case e.Op == parser.LOR:
		maps.Copy(out, right)
	case e.VectorMatching.On && e.VectorMatching.Card == parser.CardOneToOne && !e.Op.IsSetOperator():
		maps.DeleteFunc(out, func(l string, _ bool) bool {
			return !slices.Contains(e.VectorMatching.MatchingLabels, l)
		})
	case !e.VectorMatching.On && !slices.Equal(slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(right))):
		problems = append(problems, fmt.Sprintf("the sides of %q have different labels and never meet", e))
	}
	return out, problems
}

func (n names) ofCall(e *parser.Call) (out map[string]bool, problems []string) {
	for _, arg := range e.Args {
		has, more := n.labelsOf(arg)
		problems = append(problems, more...)
		if has != nil {
			out = maps.Clone(has)
		}
	}
	if e.Func.Name == "label_replace" {
		out[e.Args[1].(*parser.StringLiteral).Val] = true
	}
	if e.Func.Name == "histogram_quantile" {
		if !out["le"] {
			problems = append(problems, fmt.Sprintf("%s: no buckets", e))
		}
		delete(out, "le")
	}
	return out, problems
}

// check parses an expression and returns what is wrong with it.
func (n names) check(expr string) (map[string]bool, []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, []string{err.Error()}
	}
	return n.labelsOf(e)
}

// TestChecksOfExpressions tries expressions with every kind of error that is checked.
func TestChecksOfExpressions(t *testing.T) {
	n := names{}
	n.add("a", "job", "rank")
	n.add("b", "job", "rank", "kind")
	n.add("h_bucket", "job", "le")
	for _, tc := range []struct{ expr, labels, problem string }{
		{`a`, "job rank", ""},
		{`a{rank="1"} > 2`, "job rank", ""},
		{`2 * sum by (job) (rate(b[1m]))`, "job", ""},
		{`sum without (kind) (b)`, "job rank", ""},
		{`a / on (job, rank) sum by (job, rank) (b)`, "job rank", ""},
		{`sum by (job) (a) or b`, "job kind rank", ""},
		{`sum by (job) (a) and on (job) b`, "job", ""},
		{`histogram_quantile(0.9, rate(h_bucket[1m]))`, "job", ""},
		{`max_over_time(sum by (job) (a)[5m:1m])`, "job", ""},
		{`-(a unless a offset 5m)`, "job rank", ""},
		{`sum(a)`, "", ""},
		{`label_replace(sum by (job) (b), "to", "$1", "job", "(.*)")`, "job to", ""},
		{`c`, "", `no process exports "c"`},
		{`a{kind="x"}`, "", `a has no label "kind"`},
		{`sum by (kind) (a)`, "", `no label "kind" to group by`},
		{`a / on (kind) b`, "", `not both sides`},
		{`a / b`, "", `never meet`},
		{`histogram_quantile(0.9, rate(a[1m]))`, "", `no buckets`},
		{`sum(`, "", `unclosed`},
	} {
		got, problems := n.check(tc.expr)
		text := strings.Join(problems, "; ")
		if tc.problem == "" && text != "" || !strings.Contains(text, tc.problem) {
			t.Errorf("%s: %q, want %q", tc.expr, text, tc.problem)
		}
		if l := strings.Join(slices.Sorted(maps.Keys(got)), " "); tc.problem == "" && l != tc.labels {
			t.Errorf("%s has the labels %q, want %q", tc.expr, l, tc.labels)
		}
	}
}
