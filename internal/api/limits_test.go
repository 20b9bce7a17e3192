package api

import (
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestConfigLimits walks every number of the configuration: zero is the default, 1 works,
// less than that is refused by its name.
func TestConfigLimits(t *testing.T) {
	numbers := 0
	for f := range reflect.TypeFor[RequestsConfig]().Fields() {
		if !f.Type.ConvertibleTo(reflect.TypeFor[int64]()) {
			continue
		}
		numbers++
		for value, taken := range map[int64]bool{1: true, math.MaxInt64: true, -1: false, math.MinInt64: false, 0: f.Name != "Partitions"} {
			c := RequestsConfig{Partitions: 4, PartitionOf: byDigit}
			reflect.ValueOf(&c).Elem().FieldByName(f.Name).SetInt(value)
			s := &site{}
			if _, err := NewRequests(c, s, s, slog.New(slog.DiscardHandler)); (err == nil) != taken || err != nil && !strings.Contains(err.Error(), f.Name) {
				t.Errorf("asks: %s %d: %v", f.Name, value, err)
			}
		}
	}
	if numbers < 4 {
		t.Errorf("%d numbers looked at, want 4 or more", numbers)
	}
}
