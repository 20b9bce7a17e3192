package dulytest

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
)

// probeAgain is how long after an answer that does not count an agent is asked again.
const probeAgain = 100 * time.Millisecond

// probe has an agent asked what became of a do that was silent, until it says so or its time is over.
func (e *Engine) probe(t *Task, effect core.Effect) {
	cmd := e.command(t, effect)
	e.at(e.now.Add(answerTime), func() {
		i := t.task.AskedOf(t.plan, effect.Seq)
		runtime := e.runtime[cmd.Agent]
		if i < 0 || runtime == nil || e.now >= effect.At {
			return
		}
		cmd.Left = effect.At.Sub(e.now)
		is, _, err := runtime.Probe(context.Background(), e.now, cmd)
		if err != nil || !is.Decides(e.now, t.task.ProbeQuiet(i)) {
			e.at(e.now.Add(probeAgain), func() { e.probe(t, effect) })
			return
		}
		_ = e.decide(t, core.Event{Kind: core.EventProbed, Seq: effect.Seq, Actor: cmd.Agent, Code: is.Code(), Result: is.Result}) // one that comes too late is stale
	})
}
