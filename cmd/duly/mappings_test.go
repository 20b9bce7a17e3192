package main

import (
	"strings"
	"testing"
)

// TestMappings: the mappings that are printed are those that were asked for; what cannot be is refused with its limit.
func TestMappings(t *testing.T) {
	code, out, errs := command(t, "", "nats-mappings", "--namespace", "prod", "--undo", "100", "payment.charge=canary:0", "ship=v-2:7%")
	if code != exitDone {
		t.Fatal(errs)
	}
	for _, want := range []string{
		"mappings {\n  \"prod.do.payment.charge\": [\n    {destination: \"prod.do.payment.charge\", weight: 100%}\n    {destination: \"prod.do.payment.charge-canary\", weight: 0%}\n  ]\n",
		`{destination: "prod.undo.payment.charge-canary", weight: 100%}`, `{destination: "prod.batch.undo.payment.charge", weight: 0%}`,
		`{destination: "prod.batch.do.ship-v-2", weight: 7%}`, `{destination: "prod.probe.ship", weight: 93%}`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	for want, args := range map[string][]string{
		`"a": want <agent>=<variant>:<percent>`:   {"a"},
		`"a=b": want <agent>=<variant>:<percent>`: {"a=b"},
		`percent "101", want 0 to 100`:            {"a=b:101"},
		`percent "x", want 0 to 100`:              {"a=b:x"},
		`agent a is there twice`:                  {"a=b:1", "a=c:1"},
		`"a=b.c:1"`:                               {"a=b.c:1"},
		`"a b=c:1"`:                               {"a b=c:1"},
		`undo: 101, want 0 to 100`:                {"a=b:1", "--undo", "101"},
		`namespace`:                               {"a=b:1", "--namespace", "P"},
		`has 66 bytes, want 1 to 64`:              {"a=" + strings.Repeat("v", 64) + ":1"},
	} {
		if code, _, errs := command(t, "", append([]string{"nats-mappings"}, args...)...); code != exitUse || !strings.Contains(errs, want) {
			t.Errorf("%q: %d %s, want %s", args, code, errs, want)
		}
	}
}
