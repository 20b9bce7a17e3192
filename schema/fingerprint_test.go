package schema

import (
	"testing"

	"duly.dev/duly/internal/core"
)

// Failures of one kind have one fingerprint, whatever number, time or id stands in
// their texts; failures of other kinds have others.
// covers: C14
func TestFingerprint(t *testing.T) {
	of := func(text string) string {
		return Fingerprint(&core.Record{Kind: core.KindFailed, Code: 500, Error: text})
	}
	for _, same := range [][2]string{
		{"no answer by 2026-11-24T08:00:10.005Z", "no answer by 2030-01-01T00:00:00Z"},
		{"order 6ba7b810-9dad-11d1-80b4-00c04fd430c8 not found", "order f81d4fae-7dec-11d0-a765-00a0c91e6bf6 not found"},
		{"dial tcp 10.0.0.7:4222: connection refused", "dial tcp 192.168.1.20:80: connection refused"},
		{"waited 1.5s", "waited 300ms"},
	} {
		if of(same[0]) != of(same[1]) {
			t.Errorf("%q and %q have two fingerprints", same[0], same[1])
		}
	}
	for _, other := range [][2]string{{"card declined", "card expired"}, {"no stock in 7", "no stock at 7"}} {
		if of(other[0]) == of(other[1]) {
			t.Errorf("%q and %q have one fingerprint", other[0], other[1])
		}
	}
}
