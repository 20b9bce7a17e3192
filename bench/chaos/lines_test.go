package main

import (
	"os"
	"path/filepath"
	"testing"
)

// speaker is a process with a log that a test writes.
func speaker(t *testing.T, name string) (p *process, say func(string)) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &process{name: name, log: file}, func(text string) {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttributes: values with and without quotes, and what is no pair at all.
func TestAttributes(t *testing.T) {
	got := attributes(`time=2026-11-25T09:00:00.000Z level=ERROR msg="ALERT: no \"commit\" succeeds" alert=begin name=commits error="a=b c" for=10s`)
	for name, want := range map[string]string{"level": "ERROR", "msg": `ALERT: no "commit" succeeds`, "alert": "begin", "name": "commits", "error": "a=b c", "for": "10s"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, other := range []string{"", "panic: no", `msg="open`, "--- x starts y"} {
		if got := attributes(other); got["msg"] != "" || got["time"] != "" {
			t.Errorf("%q: %v", other, got)
		}
	}
}

// TestLogsAreReadOnce: each line once, only whole ones, only those of this version.
func TestLogsAreReadOnce(t *testing.T) {
	p, say := speaker(t, "ingest")
	l := newLogs("/older")
	read := func(want ...string) {
		t.Helper()
		got, err := l.read([]*process{p})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%+v, want %q", got, want)
		}
		for i := range want {
			if got[i].text != want[i] || got[i].process != "ingest" {
				t.Errorf("%+v, want %q", got[i], want[i])
			}
		}
	}
	say("--- t starts /newer\ntime=2026-11-25T09:00:00.000Z level=INFO msg=a\nnot a line\ntime=2026-11-25T09:00:00.100Z level=INFO msg=")
	read("a")
	read()
	say("b\n")
	read("b")
	say("--- t starts /older\ntime=2026-11-25T09:00:01.000Z level=INFO msg=c\n--- t starts /newer\ntime=2026-11-25T09:00:02.000Z level=INFO msg=d\n")
	read("d")
	if got := l.noise(); len(got) != 0 {
		t.Errorf("noise %v", got)
	}
}

// TestNoise: a cause is a message, and where it has them a condition, its resource and its
// phase, of one life of one process.
func TestNoise(t *testing.T) {
	for name, test := range map[string]struct {
		lines string
		want  int
	}{
		"a second apart":  {"time=2026-11-25T09:00:00.000Z msg=a\ntime=2026-11-25T09:00:01.000Z msg=a\n", 0},
		"within a second": {"time=2026-11-25T09:00:00.000Z msg=a x=1\ntime=2026-11-25T09:00:00.500Z msg=a x=2\ntime=2026-11-25T09:00:00.900Z msg=a\n", 2},
		"two messages":    {"time=2026-11-25T09:00:00.000Z msg=a\ntime=2026-11-25T09:00:00.100Z msg=b\n", 0},
		"two resources":   {"time=2026-11-25T09:00:00.000Z msg=a name=s key=x\ntime=2026-11-25T09:00:00.100Z msg=a name=s key=y\n", 0},
		"one resource":    {"time=2026-11-25T09:00:00.000Z msg=a name=s key=x\ntime=2026-11-25T09:00:00.100Z msg=a name=s key=x\n", 1},
		"last words":      {"time=2026-11-25T09:00:00.000Z msg=a\ntime=2026-11-25T09:00:00.500Z msg=a\n--- 2026-11-25T09:00:00.600Z ended: <nil>\n", 0},
		"before the last": {"time=2026-11-25T09:00:00.000Z msg=a\ntime=2026-11-25T09:00:00.500Z msg=a\n--- 2026-11-25T09:00:01.600Z ended: <nil>\n", 1},
		"two lives":       {"time=2026-11-25T09:00:00.000Z msg=a\n--- t starts /newer\ntime=2026-11-25T09:00:00.100Z msg=a\n", 0},
	} {
		p, say := speaker(t, "p")
		l := newLogs("/older")
		say("--- t starts /newer\n" + test.lines)
		if _, err := l.read([]*process{p}); err != nil {
			t.Fatal(err)
		}
		if got := l.noise(); got["a"] != test.want {
			t.Errorf("%s: %v, want %d", name, got, test.want)
		}
	}
}
