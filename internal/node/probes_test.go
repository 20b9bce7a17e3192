package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// TestProbesAskAgain: an agent is asked until it says; that it sees no effect counts only once no do can make one.
func TestProbesAskAgain(t *testing.T) {
	absent, working := core.Probe{Outcome: core.ProbeAbsent}, core.Probe{Outcome: core.ProbeInProgress}
	done := core.Probe{Outcome: core.ProbeDone, Result: []byte(`1`)}
	for name, c := range map[string]struct {
		answers []core.Probe // then errors
		want    core.ProbeOutcome
		from    time.Duration // not before
	}{
		"done at once":                {[]core.Probe{done}, core.ProbeDone, 0},
		"done after a while":          {[]core.Probe{working, absent, done}, core.ProbeDone, 300 * time.Millisecond},
		"absent counts when quiet":    {[]core.Probe{absent, absent, absent, absent, absent, absent}, core.ProbeAbsent, 2 * time.Second},
		"an agent that cannot tell":   {nil, "", 0},
		"always at work":              {[]core.Probe{working, working, working, working, working, working, working, working, working}, "", 0},
		"absent only while it may be": {[]core.Probe{absent, absent}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, at := time.Now(), 0
				var left []time.Duration
				p := newProbes(func() core.Instant { return core.InstantOf(time.Now()) }, func(_ context.Context, cmd *core.Command, most int) (core.Probe, error) {
					left = append(left, cmd.Left)
					if at++; at > len(c.answers) || most != 9 {
						return core.Probe{}, errors.New("nothing is known")
					}
					return c.answers[at-1], nil
				}, slog.New(slog.DiscardHandler))
				defer p.close()
				var got core.ProbeOutcome
				var when time.Duration
				p.begin(scheduler.Question{
					Command:   core.Command{Agent: "a", Task: "t", Step: "s", Left: 6 * time.Second, CompleteBy: core.InstantOf(began.Add(6 * time.Second))},
					ResultMax: 9, Quiet: core.InstantOf(began.Add(2 * time.Second)),
				}, func(p core.Probe) {
					if got != "" {
						t.Errorf("two answers: %s, %s", got, p.Outcome)
					}
					got, when = p.Outcome, time.Since(began)
				})
				<-time.After(10 * time.Second)
				synctest.Wait()
				if got != c.want || when < c.from {
					t.Errorf("%q after %v, want %q not before %v", got, when, c.want, c.from)
				}
				if left[0] != 5*time.Second || left[len(left)-1] > 6*time.Second {
					t.Errorf("the agent had %v", left)
				}
			})
		})
	}
}

// TestProbesEnd: what is asked ends with the node, also while an agent does not answer.
func TestProbesEnd(t *testing.T) {
	asked := make(chan struct{})
	p := newProbes(func() core.Instant { return 0 }, func(ctx context.Context, _ *core.Command, _ int) (core.Probe, error) {
		close(asked)
		<-ctx.Done()
		return core.Probe{}, ctx.Err()
	}, slog.New(slog.DiscardHandler))
	p.begin(scheduler.Question{Command: core.Command{Left: time.Hour}}, func(core.Probe) { t.Error("it is answered") })
	<-asked
	p.close()
}

// TestSilentAgentHoldsUpNoProbe: an agent that answers no question, of many, keeps none from another agent.
func TestSilentAgentHoldsUpNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := newProbes(func() core.Instant { return core.InstantOf(time.Now()) }, func(ctx context.Context, cmd *core.Command, _ int) (core.Probe, error) {
			if cmd.Agent == "silent" {
				<-ctx.Done()
				return core.Probe{}, ctx.Err()
			}
			return core.Probe{Outcome: core.ProbeDone, Result: []byte(`1`)}, nil
		}, slog.New(slog.DiscardHandler))
		defer p.close()
		ask := func(agent string, said func(core.Probe)) {
			p.begin(scheduler.Question{Command: core.Command{Agent: agent, Left: time.Minute, CompleteBy: core.InstantOf(began.Add(time.Minute))}}, said)
		}
		for range 8 * probesAtOnce {
			ask("silent", func(core.Probe) { t.Error("it is answered") })
		}
		synctest.Wait()
		answered := false
		ask("well", func(core.Probe) { answered = true })
		synctest.Wait()
		if !answered {
			t.Error("the agent that answers is not asked")
		}
	})
}
