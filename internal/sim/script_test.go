package sim_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/sim"
	"duly.dev/duly/schema/sqlite"
)

var update = flag.Bool("update", false, "write what the scripts print into their files")

// takeoverOfMany is played in memory only.
const takeoverOfMany = "08_takeover_100000_commands"

// TestScripts plays testdata/scripts/*.txt on both stores: the real roles in a
// small world without chance. A script is read top to bottom: a line that
// begins at the margin is done, the indented lines below it are what the parties
// saw and did, in order. Times are those since the script began; +5s lets five
// seconds pass, alone or before a command. The network takes no time, an agent
// five milliseconds; a jitter is one half.
//
//	plan order complete-by=60s grace=2s
//	step charge agent=bank attempts=2
//	node n1
//	next bank do=hang
//	submit t1 type=order
//	+10s tick
//	end
//
// What a script shows is checked besides being compared: see stage.end.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	graphs, err2 := filepath.Glob("testdata/graph/*.txt")
	if err != nil || err2 != nil || len(files) == 0 || len(graphs) == 0 {
		t.Fatalf("no scripts: %v, %v", err, err2)
	}
	files = append(files, graphs...)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { playFile(t, file, inMemory, *update) })
		if name != takeoverOfMany { // a minute of inserts, and nothing else to see
			t.Run("sqlite/"+name, func(t *testing.T) { playFile(t, file, onSQLite, false) })
		}
	}
}

func playFile(t *testing.T, file string, open func(*testing.T) stageStore, rewrite bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := play(t, string(data), open)
	if rewrite && !t.Failed() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != string(data) {
		t.Errorf("%s differs: %s\nit prints now:\n%s", file, firstDifference(string(data), got), got)
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return "line " + strconv.Itoa(i+1) + "\n  was " + w[i] + "\n  now " + g[i]
		}
	}
	return "one is longer than the other"
}

func inMemory(*testing.T) stageStore {
	m := sim.NewMemStore()
	m.OldOwners = true
	return stageStore{backend: m, addPlan: m.AddPlan}
}

func onSQLite(t *testing.T) stageStore {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "duly.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := store.Partitions(ctx, partitionsMax); err != nil {
		t.Fatal(err)
	}
	return stageStore{backend: store, addPlan: func(p planOf) {
		if err := store.PutPlan(ctx, p.WithDefaults()); err != nil {
			t.Fatal(err)
		}
	}}
}

// play runs a script and returns it with what it prints.
func play(t *testing.T, text string, open func(*testing.T) stageStore) string {
	s := newStage(t, func() stageStore { return open(t) })
	defer s.close()
	words := []string{""}
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "    ") {
			continue // what it printed last time
		}
		s.b.WriteString(line + "\n")
		if line != "" && line[0] != '#' {
			words = strings.Fields(line)
			s.command(words)
		}
	}
	if words[len(words)-1] != "end" {
		t.Error("the script does not end with the command end, which checks it")
	}
	return s.b.String()
}

// args are the key=value words of a command; "_" in a value is a space.
type args map[string]string

func argsOf(words []string) args {
	a := args{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		a[key] = strings.ReplaceAll(value, "_", " ")
	}
	return a
}

func (a args) or(key, def string) string {
	if v, ok := a[key]; ok {
		return v
	}
	return def
}

func (s *stage) command(words []string) {
	s.t.Helper()
	if words[0][0] == '+' {
		s.pass(s.duration(words[0][1:]))
		if words = words[1:]; len(words) == 0 {
			return
		}
	}
	name, a := "", args{}
	if len(words) > 1 {
		name, a = words[1], argsOf(words[2:])
	}
	if do, ok := s.verbs()[words[0]]; ok {
		do(name, a)
		s.pass(0)
		return
	}
	s.t.Fatalf("no command is called %q", words[0])
}

func (s *stage) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *stage) number(text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}
