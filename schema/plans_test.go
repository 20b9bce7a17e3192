package schema

import (
	"testing"

	"duly.dev/duly/internal/core"
)

// TestPlansAreDecodedOnce: a reading decodes what the one before has not, or had otherwise, and keeps no plan that is gone.
func TestPlansAreDecodedOnce(t *testing.T) {
	spec := func(agent string) []byte {
		b, err := encodePlan(&core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "a", Agent: agent}}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := core.PlanKey{Name: "order", Version: 1}
	s := planSpecs{}
	read := func(spec []byte) *core.Step {
		t.Helper()
		p, err := s.decode(key, spec)
		if err != nil {
			t.Fatal(err)
		}
		return &p.Steps[0]
	}
	first := read(spec("pay"))
	if read(spec("pay")) != first {
		t.Error("the same spec is decoded again")
	}
	if is := read(spec("ship")); is.Agent != "ship" {
		t.Errorf("another spec under the same version gives agent %s", is.Agent)
	}
	for range 2 {
		if _, err := s.decode(key, []byte(`{"v":99}`)); err == nil {
			t.Error("a spec that cannot be read is no error")
		}
	}
	second := read(spec("pay"))
	s.keep(map[core.PlanKey]bool{key: true})
	if read(spec("pay")) != second {
		t.Error("a plan that is there is forgotten")
	}
	s.keep(nil)
	if len(s.all) != 0 {
		t.Errorf("%d plans are kept that are gone", len(s.all))
	}
}
