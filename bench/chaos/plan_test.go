package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPlan: the same seed draws the same faults, each kind has a turn before any
// has a second, and every draw is within its kind's bounds.
func TestPlan(t *testing.T) {
	for _, topology := range []topology{single, cluster, devOnly} {
		list := fitting(topology, "")
		a, b, c := newPlan(list, 7), newPlan(list, 7), newPlan(list, 8)
		var first []string
		differ := false
		for n := range 20 * len(list) {
			x, y, z := a.next(), b.next(), c.next()
			if x.kind != y.kind || x.hold != y.hold || x.pick != y.pick || x.pause != y.pause {
				t.Fatalf("draw %d differs with the same seed: %+v %+v", n, x, y)
			}
			differ = differ || x.kind != z.kind
			if n < len(list) {
				first = append(first, x.kind.name)
			}
			if a.all() != (n >= len(list)-1) {
				t.Errorf("after %d draws of %d kinds all is %v", n+1, len(list), a.all())
			}
			if x.hold < x.kind.least || x.hold > max(x.kind.least, x.kind.most) || x.pause < pauseLeast || x.pause > pauseMost {
				t.Errorf("%s: hold %v pause %v", x.kind.name, x.hold, x.pause)
			}
		}
		early := slices.IndexFunc(a.kinds, func(k *kind) bool { return k.copies && !slices.Contains(first[:3], k.name) })
		if early >= 0 {
			t.Errorf("%s copies a database that has grown: %v", a.kinds[early].name, first)
		}
		slices.Sort(first)
		if len(slices.Compact(first)) != len(list) {
			t.Errorf("the first draws are %v, want each of %d kinds once", first, len(list))
		}
		if !differ {
			t.Error("another seed draws the same faults")
		}
	}
}

// TestKinds: the table is sound.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range kinds {
		if seen[k.name] || k.name == "" {
			t.Errorf("kind %q twice or without a name", k.name)
		}
		seen[k.name] = true
		if k.due != nil && k.due.after > k.most && k.most > 0 {
			t.Errorf("kind %s holds for %v at most and is told after %v", k.name, k.most, k.due.after)
		}
		if k.fits == 0 || k.weight < 1 || k.run == nil || k.least > k.most {
			t.Errorf("kind %s: %+v", k.name, k)
		}
	}
	if got := fitting(single, "kill-nats"); len(got) != 1 || got[0].name != "kill-nats" {
		t.Errorf("only kill-nats: %v", got)
	}
	if got := fitting(single, "kill-dev,kill-nats,kill-agents"); len(got) != 2 {
		t.Errorf("two of three fit: %v", got)
	}
	if got := fitting(devOnly, "kill-nats"); got != nil {
		t.Errorf("kill-nats fits %v, want no stage of SQLite", got)
	}
}

// TestKindsAreDocumented: bench/chaos/README.md says of each kind what is done and what is promised.
func TestKindsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## The faults\n")
	for i := range kinds {
		if name := regexp.MustCompile(`(?m)^\| ([\w-]+, )*` + kinds[i].name + `(, [\w-]+)* \|`); !name.MatchString(table) {
			t.Errorf("bench/chaos/README.md has no row of %s", kinds[i].name)
		}
	}
}

// TestDisastersAreTried: docs/operations/disaster.md names no fault that there is not.
func TestDisastersAreTried(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations", "disaster.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.Lines(string(page)) {
		rest, ok := strings.CutPrefix(line, "Tried by chaos ")
		if !ok {
			continue
		}
		for _, name := range regexp.MustCompile("`([\\w-]+)`").FindAllStringSubmatch(rest, -1) {
			named++
			if !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name[1] }) {
				t.Errorf("%q is no kind of fault", name[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("%d kinds of fault are named", named)
	}
}

// TestOlderBinary: the older binary is built when a fault needs it.
func TestOlderBinary(t *testing.T) {
	for only, want := range map[string]bool{"": true, "upgrade": true, "kill-nats,upgrade": true, "kill-nats": false} {
		if s := (&settings{store: storePostgres, only: only}); s.upgrades() != want {
			t.Errorf("only %q: needs an older binary: %v, want %v", only, !want, want)
		}
	}
}

// TestParse: bad settings get an error that names them and their limits.
func TestParse(t *testing.T) {
	if s, err := parse([]string{"-store", "sqlite", "-seconds", "9", "-rate", "10", "-seed", "3"}); err != nil || s.seed != 3 || s.rate != 10 || s.seconds != 9 || s.store != storeSQLite {
		t.Errorf("%+v %v", s, err)
	}
	for _, bad := range [][]string{
		{"-store", "oracle"}, {"-seconds", "0"}, {"-seconds", "x"}, {"-rate", "0"}, {"-rate", "20001"}, {"-seed", "-1"}, {"-only", "kill-everything"}, {"-only", "kill-nats,"},
		{"-store", "sqlite", "-only", "kill-nats"}, {"more"},
		{"-over", "1"}, {"-over", "11"}, {"-over", "NaN"}, {"-over", "x"}, {"-over", "1.5", "-workload", "travel"},
	} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	if s, err := parse([]string{"-over", "1.5"}); err != nil || s.over != 1.5 {
		t.Errorf("%+v %v", s, err)
	}
	t.Setenv("CHAOS_RATE", "800")
	if _, err := parse([]string{"-over", "1.5"}); err == nil || !strings.Contains(err.Error(), `over: "1.5" and rate: "800"`) {
		t.Errorf("a rate and a multiple: %v", err)
	}
}
