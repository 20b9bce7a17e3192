package expr

import (
	"sync"
	"testing"

	"duly.dev/duly/internal/core"
)

// sharedErrors are expressions that fail with a value that CEL makes once and marks with the place of the first failure.
var sharedErrors = []struct{ source, want string }{
	{`timestamp(input.far) > timestamp(0)`, "the instant is out of range, want one of the years 1 to 9999"},
	{`input.one.matches("a")`, "values of such types have no such operation; int(), double() and string() convert"},
	{`math.abs(input.least) > 0`, "the number is too large or too small for an int; double() makes it one that is not"},
}

// The place that is told is that of the expression which failed, or none: not that of the one which failed so first.
func TestSharedErrorsHaveNoPlace(t *testing.T) {
	if len(sharedErrs) != len(sharedErrors) {
		t.Errorf("%d shared errors are known, want %d", len(sharedErrs), len(sharedErrors))
	}
	for _, c := range sharedErrors {
		for _, before := range []string{"", "true && "} {
			source := before + c.source
			p := compile(t, order(func(p *core.Plan) { p.Steps[2].When = source }))
			_, err := p.When(taskOf(`{"far":999999999999,"one":1,"least":-9223372036854775808}`, `1`, `{}`), 2)
			if want := "step c: when: in " + source + ": " + c.want; err == nil || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
	}
}

// Programs that fail at once with the same shared value do not write to it: under -race this test finds it.
func TestSharedErrorsAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for _, c := range sharedErrors {
		for _, before := range []string{"", "true && "} {
			p := compile(t, order(func(p *core.Plan) { p.Steps[2].When = before + c.source }))
			all.Go(func() {
				if _, err := p.When(taskOf(`{"far":999999999999,"one":1,"least":-9223372036854775808}`, `1`, `{}`), 2); err == nil {
					t.Errorf("%s: no error", c.source)
				}
			})
		}
	}
	all.Wait()
}
