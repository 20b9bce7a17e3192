package main

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rising makes the samples of a run: each figure begins somewhere and rises by
// so much from one sample to the next.
func rising(n int, pss, files, goroutines float64) []sample {
	var all []sample
	for i := range n {
		x := float64(i)
		all = append(all, sample{partSystem, 100 + pss*x, 50 + files*x, 80 + goroutines*x}, sample{partAgents, 30, 10, 20})
	}
	return all
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		samples []sample
		want    string
	}{
		"flat":       {rising(40, 0, 0, 0), ""},
		"falls":      {rising(40, -1, -0.5, -1), ""},
		"a little":   {rising(40, 0.2, 0.1, 0.2), ""},
		"memory":     {rising(40, 1, 0, 0), "pss_mib"},
		"files":      {rising(40, 0, 1, 0), "files"},
		"goroutines": {rising(40, 0, 0, 2), "goroutines"},
		"none":       {nil, ""},
	} {
		got := judge(c.samples)
		switch {
		case c.want == "" && len(got) != 0, c.want != "" && (len(got) != 1 || got[0].What != c.want || got[0].Part != partSystem):
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
	// A peak that is gone again, and a start that is warming up, are no growth.
	peak := rising(40, 0, 0, 0)
	for i := range peak {
		if i < 20 {
			peak[i].PSS /= 2
		}
		if i%10 == 0 {
			peak[i].PSS *= 3
		}
	}
	if got := judge(peak); len(got) != 0 {
		t.Errorf("peaks: %+v", got)
	}
}

// TestProcess: a process that is not there is an error, not an empty one.
func TestProcess(t *testing.T) {
	s, err := held(0, 7)
	if err == nil {
		t.Errorf("process 0: %+v", s)
	}
}
