package config

import (
	"reflect"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestShares: what is written is what counts; anything else is refused with the field, the value and what is allowed.
func TestShares(t *testing.T) {
	f := Fair{Weights: []string{"class:low=2", "type:order=4", "tenant:acme=1000", "tenant:a=b:c=3", "tenant:=5"}}
	got, err := f.Shares()
	want := Shares{Classes: [core.Classes]int{core.ClassLow: 2}, Types: map[string]int{"order": 4}, Tenants: map[string]int{"acme": 1000, "a=b:c": 3, "": 5}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for text, says := range map[string]string{
		"":                 "want class:NAME=WEIGHT",
		"order=4":          "want class:NAME=WEIGHT",
		"type:order":       "want class:NAME=WEIGHT",
		"kind:order=4":     `weight of "kind", want class, type or tenant`,
		"class:urgent=4":   `priority "urgent", want high, normal or low`,
		"type:order=0":     `weight "0", want 1 to 1000`,
		"type:order=1001":  `weight "1001", want 1 to 1000`,
		"type:order=much":  `weight "much", want 1 to 1000`,
		"type:a.b=1":       "type",
		"tenant: acme=1":   "space",
		"class:low=3":      "class low is given twice",
		"tenant:acme=1":    `tenant "acme" is given twice`,
		"type:order=\x001": "want 1 to 1000",
	} {
		f := Fair{Weights: []string{"class:low=2", "tenant:acme=2", text}}
		if _, err := f.Shares(); err == nil || !strings.HasPrefix(err.Error(), "weights: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want a text with %q", text, err, says)
		}
	}
}
