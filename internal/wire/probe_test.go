package wire

import (
	"errors"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestProbeGolden pins the names and the answers; the question is a command, which has a test of its own.
func TestProbeGolden(t *testing.T) {
	if got := (Names{}).SubjectProbe("payment.charge"); got != "duly.probe.payment.charge" {
		t.Errorf("subject %s", got)
	}
	if got := (Names{}).PatternProbe(); got != "duly.probe.>" {
		t.Errorf("pattern %s", got)
	}
	for _, c := range []struct {
		is   core.Probe
		text string
	}{
		{core.Probe{Outcome: core.ProbeDone, Result: []byte(`{"a": [1,  "<"]}`)}, `{"v":1,"outcome":"done","result":{"a": [1,  "<"]}}`},
		{core.Probe{Outcome: core.ProbeDone, Result: []byte(`null`)}, `{"v":1,"outcome":"done","result":null}`},
		{core.Probe{Outcome: core.ProbeAbsent}, `{"v":1,"outcome":"absent"}`},
		{core.Probe{Outcome: core.ProbeInProgress}, `{"v":1,"outcome":"in_progress"}`},
	} {
		if got := string(AppendProbe([]byte("x"), &c.is)); got != "x"+c.text {
			t.Errorf("got  %s\nwant x%s", got, c.text)
		}
		back, err := DecodeProbe([]byte(c.text), 100)
		if err != nil || back.Outcome != c.is.Outcome || string(back.Result) != string(c.is.Result) {
			t.Errorf("%s: %+v %v", c.text, back, err)
		}
	}
	if p, err := DecodeProbe([]byte(`{"outcome":"done","v":1,"later":[]}`), 10); err != nil || string(p.Result) != "null" {
		t.Errorf("without a result, with an unknown member: %+v %v", p, err)
	}
}

// TestProbeRefused: an answer that is none is an error that says why, and never an outcome.
func TestProbeRefused(t *testing.T) {
	long := `"` + strings.Repeat("x", 20) + `"`
	for text, want := range map[string]string{
		"":                                      "JSON",
		"null":                                  "v is 0",
		"[]":                                    "array",
		`{"v":2,"outcome":"absent"}`:            "v is 2, want 1",
		`{"v":1}`:                               `outcome "", want done, absent or in_progress`,
		`{"v":1,"outcome":"Done"}`:              `outcome "Done"`,
		`{"v":1,"outcome":"absent","result":1}`: "absent has a result",
		`{"v":1,"outcome":"in_progress","result":{}}`:                "in_progress has a result",
		`{"v":1,"outcome":"done","result":` + long + `}`:             "22 bytes, the limit is 10",
		`{"v":1,"outcome":"done","result":"` + "\x00" + `"}`:         "probe",
		`{"v":1,"outcome":"absent"` + strings.Repeat(" ", 300) + `}`: "326 bytes, the limit is 266",
		`{"v":1,"outcome":7}`:                                        "outcome",
	} {
		p, err := DecodeProbe([]byte(text), 10)
		if !errors.Is(err, ErrUndecodable) || !strings.Contains(err.Error(), want) || p.Outcome != "" {
			t.Errorf("%s: %+v %v, want %q", text, p, err, want)
		}
	}
}

// FuzzProbe: what is taken is one of the outcomes, with a result where there is one, within the limit.
func FuzzProbe(f *testing.F) {
	f.Add([]byte(`{"v":1,"outcome":"done","result":{"a":1}}`))
	f.Add([]byte(`{"v":1,"outcome":"absent"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 100
		p, err := DecodeProbe(data, most)
		if err != nil {
			return
		}
		if len(p.Result) > most || (p.Outcome == core.ProbeDone) != (len(p.Result) > 0) {
			t.Fatalf("%+v of %q", p, data)
		}
		back, err := DecodeProbe(AppendProbe(nil, &p), most)
		if err != nil || back.Outcome != p.Outcome || string(back.Result) != string(p.Result) {
			t.Fatalf("%+v comes back as %+v, %v", p, back, err)
		}
	})
}
