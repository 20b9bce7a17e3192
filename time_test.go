package duly

import (
	"context"
	"testing"
	"time"
)

// What the context of one command costs that ends long before its deadline, beside 256 others.
func BenchmarkWithTimeout(b *testing.B) {
	parent, cancelParent := context.WithCancel(b.Context())
	defer cancelParent() // ends the others, too
	for range 256 {
		_, cancel := wall{}.WithTimeout(parent, time.Hour)
		b.Cleanup(cancel)
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := wall{}.WithTimeout(parent, time.Minute)
		if ctx.Err() != nil {
			b.Fatal(ctx.Err())
		}
		cancel()
	}
}
