package duly

import (
	"context"
	"errors"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestServeProbe: a probe gets the call whose outcome is not known, and its answer is the step's result, as it would have
// been; with a codec encoded as a result is.
func TestServeProbe(t *testing.T) {
	codec, err := NewAES256GCM(Key{ID: "k", Secret: make([]byte, KeyBytes)})
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("the bank is away")
	for _, with := range []Codec{nil, codec} {
		cmd := core.Command{Agent: "payment.charge", Task: "order-17", Type: "order", Step: "charge", Attempt: 2, Left: time.Minute, Input: []byte(`{"Cents":1999}`)}
		var options []AgentOption
		if with != nil {
			options = append(options, WithCodec(with))
			if cmd.Input, err = with.Encode(Place{Type: "order", Task: "order-17"}, cmd.Input); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range map[string]struct {
			is     Probe[testReceipt]
			err    error
			want   core.ProbeOutcome
			result string
		}{
			"done":        {is: Done(testReceipt{"p-1"}), want: core.ProbeDone, result: `{"Payment":"p-1"}`},
			"absent":      {is: Absent[testReceipt](), want: core.ProbeAbsent},
			"in progress": {is: InProgress[testReceipt](), want: core.ProbeInProgress},
			"none":        {},
			"not known":   {is: Done(testReceipt{}), err: ErrNotKnown},
			"an error":    {is: Absent[testReceipt](), err: away},
		} {
			agent, err := NewAgent(nil, options...)
			if err != nil {
				t.Fatal(err)
			}
			if err := testCharge.ServeProbe(agent, func(_ context.Context, call Call[testOrder]) (Probe[testReceipt], error) {
				if call.Key != "order-17/charge/0" || call.Attempt != 2 || call.Input.Cents != 1999 {
					t.Errorf("asked about %+v", call)
				}
				return c.is, c.err
			}); err != nil {
				t.Fatal(err)
			}
			p, _, err := agent.Runtime().Probe(t.Context(), core.InstantOf(time.Now()), &cmd)
			if p.Outcome != c.want || (err != nil) != (c.want == "") || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s: %+v %v, want %q", name, p, err, c.want)
			}
			result, err := decode(with, Place{"order", "order-17", "charge"}, p.Result)
			if err != nil || string(result) != c.result {
				t.Errorf("%s: result %s %v, want %s", name, result, err, c.result)
			}
		}
	}
}

// TestServeProbeRefuses: what could never be answered is refused where it is served.
func TestServeProbeRefuses(t *testing.T) {
	agent, err := NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	probe := func(context.Context, Call[testOrder]) (Probe[testReceipt], error) { return Absent[testReceipt](), nil }
	if err := testCharge.ServeProbe(agent, probe); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"twice": testCharge.ServeProbe(agent, probe), "nil": testCharge.ServeProbe(agent, nil),
		"a bad option": NewStep[testOrder, testReceipt]("charge", "other", Attempts(0)).ServeProbe(agent, probe),
	} {
		if err == nil {
			t.Errorf("%s: served", name)
		}
	}
}
