package ingest

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestConfigLimits walks every number of the configuration:
// zero is the default, 1 works, less than that is refused by its name.
//
// covers: E21
func TestConfigLimits(t *testing.T) {
	numbers := 0
	for f := range reflect.TypeFor[Config]().Fields() {
		if !f.Type.ConvertibleTo(reflect.TypeFor[int64]()) {
			continue
		}
		numbers++
		for value, taken := range map[int64]bool{1: true, math.MaxInt64: true, -1: false, math.MinInt64: false, 0: f.Name != "Partitions"} {
			c := Config{StreamOf: oneStream, Partitions: 4, PartitionOf: byDigit}
			reflect.ValueOf(&c).Elem().FieldByName(f.Name).SetInt(value)
			c = c.WithDefaults()
			if err := c.Validate(); (err == nil) != taken || err != nil && !strings.Contains(err.Error(), f.Name+" is ") {
				t.Errorf("%s %d: %v", f.Name, value, err)
			}
		}
	}
	if numbers < 18 {
		t.Errorf("%d numbers looked at, want 18 or more", numbers)
	}
}
