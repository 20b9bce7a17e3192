package main

import (
	"testing"
	"time"
)

// Quantiles are by nearest rank.
func TestQuantiles(t *testing.T) {
	l := newLatencies()
	if got := l.quantiles(); got != (quantiles{}) {
		t.Errorf("of nothing: %+v", got)
	}
	for i := 200; i > 0; i-- {
		l.add(time.Duration(i) * time.Millisecond)
	}
	if got := l.quantiles(); got.P50 != 100 || got.P99 != 198 {
		t.Errorf("of 1 to 200 ms: %+v", got)
	}
}
