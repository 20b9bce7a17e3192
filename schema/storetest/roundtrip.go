package storetest

import (
	"math"
	"strings"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

// fullTask has a value of its own in every field of its row.
func fullTask(p int, number int64) *core.Task {
	return &core.Task{
		Partition: p, Number: number, ID: "id-" + strings.Repeat("x", 61), Type: "order", PlanVersion: math.MaxInt64,
		Input: []byte{0, 1, 0xff}, InputHash: []byte{0xfe, 0}, ReplyTo: "reply.to.ä", Trace: "00-trace-01", Labels: []core.Label{{Key: "k", Value: "a=b c"}, {Key: "a", Value: "1"}}, Origin: math.MaxInt64,
		State: core.StateUndoing, Seq: 1, Round: 4, Deadline: start + 1, Bound: start + 2, Failures: 5, LockedBy: "node ü", WaitsFor: "agent.b",
		CreatedAt: start + 3, UpdatedAt: start + 4, EndedAt: start + 5, EndNumber: 6,
		Parent: math.MaxInt64, ParentStep: 63, ChildIndex: 9_999, StartAt: start + 7,
	}
}

// fullRecord has a value of its own in every field.
func fullRecord(seq int64) core.Record {
	return core.Record{
		Seq: seq, Kind: core.KindUndoRefused, At: start + 11, Actor: "agent é", Reason: "because", State: core.StateUndoing, Round: 4,
		Step: 63, StepStatus: core.StepUndone, Attempt: 1000, Code: 599, Error: "text", Result: []byte("{}\x00"), EffectsPossibleUntil: start + 12,
		Next: 62, NextAttempt: 999, Undo: true, Due: start + 13, Deadline: start + 14,
	}
}

func testRoundTrip(r *rig) {
	full := core.TaskWrite{Task: fullTask(1, 1), Birth: true, Records: []core.Record{fullRecord(1), fullRecord(2)}}
	bare := core.TaskWrite{
		Task:    &core.Task{Partition: 1, Number: 2, ID: "b", Type: "t", State: core.StatePending, Seq: 1, CreatedAt: 1, UpdatedAt: 1},
		Birth:   true,
		Records: []core.Record{{Seq: 1, At: 1, Kind: core.KindSubmitted, State: core.StatePending, Step: -1, Next: -1}},
	}
	// No bytes are nothing.
	empty := core.TaskWrite{
		Task:    &core.Task{Partition: 1, Number: 3, ID: "c", Type: "t", State: core.StatePending, Seq: 1, CreatedAt: 1, UpdatedAt: 1, Input: []byte{}, InputHash: []byte{}},
		Birth:   true,
		Records: []core.Record{{Seq: 1, At: 1, Kind: core.KindDone, State: core.StatePending, Result: []byte{}}},
	}
	large := birth(1, 4, "d")
	large.Task.Input = []byte(strings.Repeat("i", core.InputBytesMax))
	large.Records[0].Result = []byte(strings.Repeat("r", core.ResultBytesMax))
	r.write(full, bare, empty, large)
	empty.Task.Input, empty.Task.InputHash, empty.Records[0].Result = nil, nil, nil
	for _, w := range []core.TaskWrite{full, bare, empty, large} {
		r.comesBack(w.Task, w.Records)
	}
	// Every field of the row that may change.
	changed := *full.Task
	changed.Seq, changed.PlanVersion, changed.State, changed.Round, changed.Deadline, changed.Bound = 3, 7, core.StatePending, 8, start+21, start+22
	changed.Failures, changed.LockedBy, changed.WaitsFor, changed.UpdatedAt, changed.EndedAt, changed.EndNumber = 9, "", "", start+24, 0, 0
	third := fullRecord(3)
	third.Input = []byte{2, 0, 0xfe} // an edit's: the row keeps that of the birth
	r.write(core.TaskWrite{Task: &changed, Row: true, Records: []core.Record{third}})
	r.comesBack(&changed, append(full.Records, third))
}

// comesBack compares a task with what is stored of it.
func (r *rig) comesBack(t *core.Task, journal []core.Record) {
	r.Helper()
	got := r.load(t.Partition, t.Number)
	if got == nil {
		r.Fatalf("task %s is not stored", t.ID)
	}
	want := *t
	want.Steps, want.FailedStep, want.Why, want.Earlier = nil, 0, "", nil // they are the replay's
	r.equal("row", got.Row, want)
	r.equal("journal", got.Journal, journal)
	r.equal("journal by itself", get(r.s.Journal(r.ctx, t.Partition, t.Number))(r), journal)
}

func testRoundTripAny(r *rig) {
	tb, number := r.TB, int64(0)
	check := func(t *rapid.T) {
		r.TB = t
		number++
		w := core.TaskWrite{Task: anyTask(t, number), Birth: true}
		for i := range rapid.IntRange(1, 5).Draw(t, "rows") {
			w.Records = append(w.Records, anyRecord(t, int64(i+1)))
		}
		r.write(w)
		r.comesBack(w.Task, w.Records)
	}
	rapid.Check(tb, check)
	r.TB = tb
}

var (
	anyInstant = rapid.Map(rapid.Int64Range(0, int64(start)*2), func(n int64) core.Instant { return core.Instant(n) })
	anyTime    = rapid.Map(rapid.Int64Range(1, int64(start)*2), func(n int64) core.Instant { return core.Instant(n) })
	anyBytes   = rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 1, 40))
	anyWords   = rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) })
	anyText    = rapid.StringN(0, 20, 60).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
	anyLabels  = rapid.Map(rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z0-9_-]{1,64}`), 0, core.LabelsMax, rapid.ID), func(keys []string) (labels []core.Label) {
		for i, key := range keys {
			labels = append(labels, core.Label{Key: key, Value: strings.Repeat("= v", i+1)})
		}
		return labels
	})
	anyState = rapid.SampledFrom([]core.State{
		core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndoing, core.StateUndone, core.StateError,
	})
	anyKind = rapid.SampledFrom([]core.Kind{core.KindSubmitted, core.KindDone, core.KindFailed, core.KindUndoOverdue, core.KindAsked, core.KindResubmitted, core.KindAccepted, core.KindLate, core.KindProbed})
)

func anyTask(t *rapid.T, number int64) *core.Task {
	return &core.Task{
		Partition: 1, Number: number, ID: "t" + core.Key("", "", int(number)), Type: anyText.Draw(t, "type"), PlanVersion: rapid.Int64Min(0).Draw(t, "version"),
		Input: anyBytes.Draw(t, "input"), InputHash: anyBytes.Draw(t, "hash"), ReplyTo: anyText.Draw(t, "reply"), Trace: anyText.Draw(t, "trace"), Labels: anyLabels.Draw(t, "labels"),
		Origin: uint64(rapid.Int64Min(0).Draw(t, "origin")), State: anyState.Draw(t, "state"), Seq: rapid.Int64Min(1).Draw(t, "seq"),
		Round: rapid.IntRange(0, math.MaxInt32).Draw(t, "round"), Deadline: anyInstant.Draw(t, "deadline"), Bound: anyInstant.Draw(t, "bound"),
		Failures: rapid.IntRange(0, math.MaxInt32).Draw(t, "failures"), LockedBy: anyText.Draw(t, "locked"), WaitsFor: anyText.Draw(t, "waits"),
		CreatedAt: anyTime.Draw(t, "created"), UpdatedAt: anyTime.Draw(t, "updated"), EndedAt: anyInstant.Draw(t, "ended"), EndNumber: number,
	}
}

func anyRecord(t *rapid.T, seq int64) core.Record {
	r := core.Record{
		Seq: seq, Kind: anyKind.Draw(t, "kind"), At: anyTime.Draw(t, "at"), Actor: anyText.Draw(t, "actor"), Reason: anyWords.Draw(t, "reason"),
		State: anyState.Draw(t, "state"), Round: rapid.IntRange(0, math.MaxInt32).Draw(t, "round"),
		Step: rapid.IntRange(-1, core.StepsMax-1).Draw(t, "step"), StepStatus: core.StepStatus(rapid.IntRange(0, int(core.StepSkipped)).Draw(t, "status")),
		Attempt: rapid.IntRange(0, core.AttemptsLimit).Draw(t, "attempt"), Code: rapid.IntRange(0, math.MaxInt32).Draw(t, "code"),
		Error: anyWords.Draw(t, "error"), Result: anyBytes.Draw(t, "result"), EffectsPossibleUntil: anyInstant.Draw(t, "quiet"),
		Next: rapid.IntRange(-1, core.StepsMax-1).Draw(t, "next"), NextAttempt: rapid.IntRange(0, core.AttemptsLimit).Draw(t, "next attempt"),
		Undo: rapid.Bool().Draw(t, "undo"), Due: anyInstant.Draw(t, "due"), Deadline: anyInstant.Draw(t, "deadline"),
	}
	if seq > 1 { // the first row has the birth's
		r.Input = anyBytes.Draw(t, "input")
	}
	return r
}
