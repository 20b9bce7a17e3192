package wire

import (
	"errors"
	"slices"
	"testing"
)

// TestAwayGolden pins what a scheduler says of agents that are away, as nodes of several versions read it, and its bounds.
func TestAwayGolden(t *testing.T) {
	if got := (Names{}).SubjectAway(); got != "duly.nodes.away" {
		t.Errorf("subject %s", got)
	}
	pay := AwayAgent{Agent: "pay", Since: at.Time(), Tasks: 3, First: at.Time(), Steps: []AwayStep{{Type: "order", Step: "charge", Tasks: 3}}}
	data, err := EncodeAway(AwayReport{Node: "n1", Agents: []AwayAgent{pay}})
	want := `{"v":1,"node":"n1","agents":[{"agent":"pay","since":"2026-01-02T03:04:05.000678Z","tasks":3,"first":"2026-01-02T03:04:05.000678Z","steps":[{"type":"order","step":"charge","tasks":3}]}]}`
	if err != nil || string(data) != want {
		t.Errorf("got %s, %v, want %s", data, err, want)
	}
	back, err := DecodeAway(data)
	if err != nil || back.Node != "n1" || back.More || len(back.Agents) != 1 || back.Agents[0].Tasks != 3 || !slices.Equal(back.Agents[0].Steps, pay.Steps) {
		t.Errorf("back: %+v, %v", back, err)
	}
	pay.Steps = slices.Repeat(pay.Steps, AwayStepsMax+1)
	if data, err = EncodeAway(AwayReport{Node: "n1", Agents: slices.Repeat([]AwayAgent{pay}, awayAgentsMax+1)}); err != nil {
		t.Fatal(err)
	}
	if back, err = DecodeAway(data); err != nil || !back.More || len(back.Agents) != awayAgentsMax || len(back.Agents[7].Steps) != AwayStepsMax {
		t.Errorf("%d agents, more %v, %v", len(back.Agents), back.More, err)
	}
	for _, bad := range []string{`[`, `{"v":2,"node":"n1"}`, `{"v":1}`} {
		if r, err := DecodeAway([]byte(bad)); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s: %+v, %v", bad, r, err)
		}
	}
}
