package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestPlanFlood: what would cost a lot to look at is refused before.
func TestPlanFlood(t *testing.T) {
	step := func(name string, after ...string) string {
		return fmt.Sprintf(`{"name":%q,"agent":"a","undoable":false,"after":["%s"]}`, name, strings.Join(after, `","`))
	}
	many := make([]string, core.StepsMax+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name":"s%d","agent":"a","undoable":false}`, i)
	}
	same := make([]string, core.StepsMax+1)
	for i := range same {
		same[i] = "first"
	}
	for name, x := range map[string]struct{ steps, want string }{
		"steps": {strings.Join(many, ","), fmt.Sprintf("%d steps, want 1 to %d", core.StepsMax+1, core.StepsMax)},
		"after": {`{"name":"first","agent":"a","undoable":false},` + step("second", same...), fmt.Sprintf("after names %d steps, the limit is %d", core.StepsMax+1, core.StepsMax)},
	} {
		if _, err := DecodePlan([]byte(`{"name":"x","version":1,"steps":[` + x.steps + `]}`)); !errors.Is(err, core.ErrPlan) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}
}
