package node

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestLimitKeys: expressions are compiled once each, for all goroutines, and forgotten when there are more than limits.
func TestLimitKeys(t *testing.T) {
	var x limitKeys
	task := &core.Task{Type: "order", Input: []byte(`{"customer":"acme"}`)}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got, err := x.of("input.customer", task); err != nil || got != "acme" {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	if len(x.keys) != 1 {
		t.Errorf("%d expressions are kept, want 1", len(x.keys))
	}
	for range 2 {
		if got, err := x.of("input.", task); err == nil || !strings.Contains(err.Error(), "column 7") {
			t.Errorf("one that does not compile: %q, %v", got, err)
		}
	}
	for i := range core.LimitsMax + 5 {
		if got, err := x.of(fmt.Sprintf("type + '%d'", i), task); err != nil || got != fmt.Sprint("order", i) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if n := len(x.keys); n > core.LimitsMax {
		t.Errorf("%d expressions are kept, the most is %d", n, core.LimitsMax)
	}
}
