package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/examples/drone"
)

// arrival is what the generator noted of one submission. Times count from its beginning.
type arrival struct {
	state    uint32
	answered time.Duration
	ended    time.Duration // 0: it has not
	as       string
}

// endNames are the ends, as generator.endedAs has them.
var endNames = append(endings[:], "expired")

// noted is a generator that has offered the segments with these arrivals.
func noted(t *testing.T, segments []segment, arrivals []arrival) *generator {
	t.Helper()
	g := &generator{plan: newSchedule(segments), sent: len(arrivals), began: time.Unix(1_800_000_000, 0)}
	g.settings.AcceptedFile = filepath.Join(t.TempDir(), "accepted")
	if g.plan.total != g.sent {
		t.Fatalf("%d arrivals, want the %d of the schedule", g.sent, g.plan.total)
	}
	for i, a := range arrivals {
		id := fmt.Sprintf("%0*d", idBytes, i)
		g.ids = append(g.ids, id...)
		g.late, g.again, g.sentAt = append(g.late, 0), append(g.again, false), append(g.sentAt, int64(g.plan.at(i)))
		g.answered, g.state = append(g.answered, int64(a.answered)), append(g.state, a.state)
		if a.ended > 0 {
			g.endedIDs, g.endedAt = append(g.endedIDs, id...), append(g.endedAt, int64(a.ended))
			g.endedAs = append(g.endedAs, uint8(slices.Index(endNames, a.as)))
		}
	}
	return g
}

// measuredOf is the result of a load of whole seconds that began at once and drained.
func measuredOf(t *testing.T, g *generator, drained time.Duration) *Result {
	t.Helper()
	at := func(d time.Duration) int64 { return g.began.Add(d).UnixNano() }
	load := loadDone{Began: at(0), Stopped: at(g.plan.length), Spiked: at(g.plan.length), Drained: at(drained), Ended: len(g.endedAt)}
	report, err := g.report(load)
	if err != nil {
		t.Fatal(err)
	}
	account(&report.Result, report, &sampler{}, &load, g.plan.segments)
	return &report.Result
}

// Work that is undone is no throughput: a load half of which is undone was not held, and its rates are of the other half.
func TestUndoneIsNotThroughput(t *testing.T) {
	const second = time.Second
	g := noted(t, []segment{{Rate: 4, For: 2 * second}}, []arrival{
		{accepted, second / 8, second / 2, "processed"},
		{accepted, second / 2, second, "undone"},
		{accepted, second, 3 * second / 2, "processed"},
		{accepted, second, 3 * second / 2, "undone"},
		{accepted, 3 * second / 2, 15 * second / 8, "undone"},
		{accepted, 3 * second / 2, 15 * second / 8, "error"},
		{accepted, 15 * second / 8, 5 * second / 2, "processed"},
		{accepted, 15 * second / 8, 5 * second / 2, "undone"},
	})
	r := measuredOf(t, g, 3*second)
	if r.Accepted != 8 || r.Processed != 3 || r.Undone != 4 || r.Error != 1 || r.FinalBacklog != 2 {
		t.Errorf("accepted %d, processed %d, undone %d, error %d, backlog %d; want 8, 3, 4, 1, 2", r.Accepted, r.Processed, r.Undone, r.Error, r.FinalBacklog)
	}
	if r.TasksPerS != 1 {
		t.Errorf("%v tasks/s, want 1: two were processed in two seconds", r.TasksPerS)
	}
	if r.DrainTasksPerS != 1 {
		t.Errorf("%v tasks/s in the drain, want 1: one of two was processed in it", r.DrainTasksPerS)
	}
	if held(r) {
		t.Error("held, although half of it was undone")
	}
}

// A window counts each thing when it happened: what arrived before it and ends in it, and nothing that is drained after it. One
// without an answer in time is refused, whatever becomes of it, and one that the stream endpoint took and the scheduler refused
// is both.
func TestWindow(t *testing.T) {
	const second = time.Second
	g := noted(t, []segment{{Rate: 1, For: 12 * second}}, []arrival{
		{accepted, second / 10, 2 * second, "processed"},                   // before the window
		{accepted, second * 11 / 10, 4500 * time.Millisecond, "processed"}, // in it, late by its own deadline
		{accepted, second * 21 / 10, 4 * second, "processed"},              // arrived before, ended in it, in time
		{accepted, second * 31 / 10, 6 * second, "undone"},                 // the same, undone
		{accepted, second * 41 / 10, 6 * second, "expired"},
		{accepted, second * 51 / 10, 6 * second, "processed"},
		{refused, second * 61 / 10, 0, ""},
		{accepted, second * 71 / 10, 8 * second, "refused"},
		{accepted, second * 81 / 10, 9 * second, "error"},
		{unanswered, 0, 9500 * time.Millisecond, "processed"}, // its client gave up
		{heldBack, 10 * second, 0, ""},
		{accepted, second * 111 / 10, 20 * second, "processed"}, // drained
	})
	g.settings.Deadline, g.settings.Window, g.settings.FirstShare = 3*second, span{4 * second, 12 * second}, 50
	g.sentAt[9], g.again[5] = int64(4*second), true
	got := *measuredOf(t, g, 21*second).Window
	want := Window{
		Seconds: 8, Offered: 8, HeldBack: 1, Refused: 3, TimedOut: 1, Taken: 5, InTime: 2, Late: 1, Undone: 1, Expired: 1, Error: 1, TakenAgain: 1,
		EndToEnd: got.EndToEnd, First: got.First, Others: got.Others,
	}
	if got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got.First.Offered+got.Others.Offered != 8 || got.First.InTime+got.Others.InTime != 2 || got.First.Offered == 0 || got.Others.Offered == 0 {
		t.Errorf("tenants %+v and %+v, want what all had", got.First, got.Others)
	}
	if q := got.EndToEnd; q.P50 < 999 || q.P50 > 1001 || q.Max < 1999 || q.Max > 2002 {
		t.Errorf("latencies %+v, want 1 and 2 s from the schedule", q)
	}
}

// What the stream endpoint has stored and the scheduler refuses is in no book of accepted tasks.
func TestRefusedAfterItWasStored(t *testing.T) {
	const second = time.Second
	g := noted(t, []segment{{Rate: 2, For: second}}, []arrival{{accepted, second / 10, second / 2, "refused"}, {accepted, second / 2, second, "processed"}})
	r := measuredOf(t, g, 2*second)
	if r.Accepted != 1 || r.Refused != 1 || r.Processed != 1 || r.EndToEnd.Max > 501 {
		t.Errorf("accepted %d, refused %d, processed %d, end to end at most %v ms; want 1 of each, 500", r.Accepted, r.Refused, r.Processed, r.EndToEnd.Max)
	}
	ids, err := readLines(g.settings.AcceptedFile)
	if err != nil || len(ids) != 1 || ids[0] != string(g.id(1)) {
		t.Errorf("books of %v, %v; want the processed one alone", ids, err)
	}
}

// How an event says that nothing of a task was called: its first journal row is its last.
func TestEndsByTheirEvents(t *testing.T) {
	g := &generator{}
	pack := func(state, ends string) {
		g.event("duly.events."+drone.Type+"."+state, []byte(`{"v":1,"type":"delivery","status":"`+state+`","events":[`+ends+`]}`))
	}
	end := func(i, seq int) string {
		return fmt.Sprintf(`{"id":"%0*d","partition":1,"end":7,"seq":%d,"at":"x"}`, idBytes, i, seq)
	}
	pack("processed", end(0, 1)+","+end(1, 6))
	pack("undone", end(2, 12)+","+end(3, 1)+","+end(4, 5))
	pack("error", end(5, 3))
	pack("refused", end(6, 0))
	pack("live", end(7, 1))
	if want := []uint8{endProcessed, endProcessed, endUndone, endExpired, endUndone, endError, endRefused}; !slices.Equal(g.endedAs, want) {
		t.Errorf("ends %v, want %v", g.endedAs, want)
	}
	if got := string(g.endedIDs[3*idBytes : 4*idBytes]); got != fmt.Sprintf("%0*d", idBytes, 3) || g.ended.Load() != 7 {
		t.Errorf("the fourth of %d is %s", g.ended.Load(), got)
	}
}
