package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// queueRig is a door in front of a scheduler that begins so many submissions a second of partition 0.
type queueRig struct {
	*rig
	now    core.Instant
	rate   int
	owner  core.Reading
	stored []int64 // submissions in each message of the stream
	n      int
}

func newQueueRig(t *testing.T, rate int, change func(*Config)) *queueRig {
	q := &queueRig{now: epoch, rate: rate, owner: core.Reading{Epoch: 1}}
	q.rig = newRig(t, change)
	q.plans.now["order"].CompleteBy = 30 * time.Second
	return q
}

// offer submits so many, and returns how many of them were taken.
func (q *queueRig) offer(n int) (taken int) {
	for range n {
		q.n++
		id := fmt.Sprintf("x%d0", q.n)
		q.submit(q.now, id)
		if len(q.answers[id]) == 0 {
			taken++
		}
	}
	q.flush()
	return taken
}

// flush stores what is packed.
func (q *queueRig) flush() {
	q.door.Flush(q.now.Add(time.Second)) // every window is over
	for i := len(q.stored); i < len(q.log.got); i++ {
		q.stored = append(q.stored, int64(len(q.log.got[i].subs)))
		q.log.store(i)
	}
	q.door.Flush(q.now)
}

// pass lets the scheduler read on for a time, and say so every quarter of a second.
func (q *queueRig) pass(d time.Duration) {
	for end := q.now.Add(d); q.now < end; {
		q.read()
		q.tell()
	}
}

// read lets the scheduler read on for a quarter of a second.
func (q *queueRig) read() {
	q.now = q.now.Add(250 * time.Millisecond)
	for room := int64(q.rate / 4); room > 0 && int(q.owner.Cursor) < len(q.stored); q.owner.Cursor++ {
		is := q.stored[q.owner.Cursor]
		q.owner.Read, q.owner.Begun, room = q.owner.Read+is, q.owner.Begun+is, room-is
	}
}

func (q *queueRig) tell() {
	q.door.Report("n1", []core.Reading{q.owner})
	q.door.Flush(q.now)
}

// wait is what the door knows of partition 0.
func (q *queueRig) wait() time.Duration { return q.door.waits.lines[0].wait(q.now) }

// pace is how fast it takes the scheduler to be.
func (q *queueRig) pace() *pace { return q.door.waits.lines[0].owner.Load().pace.Load() }

// TestLateIsRefused: a submission that would begin too late is refused at once, with the wait, and when to come again;
// one that has the time is taken, and so is one whose plan says that it may be late.
//
// covers: E14, I6
func TestLateIsRefused(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) {
		cfg.Needs = func(*core.Plan) time.Duration { return 2 * time.Second }
	})
	q.tell()
	if got := q.offer(12_000); got != 12_000 {
		t.Fatalf("%d of 12000 were taken by a door that does not know how fast the scheduler is", got)
	}
	q.pass(2 * time.Second)
	if wait := q.wait(); wait < 9*time.Second || wait > 11*time.Second {
		t.Fatalf("the wait is %v, want some 10 s", wait)
	}
	ask := func(id, by, class string) {
		req := q.request(id)
		req.CompleteBy = by
		if class != "" {
			req.Labels = core.PriorityLabel + "=" + class
		}
		q.door.Submit(q.now, req)
	}
	ask("enough0", "30s", "")
	ask("short0", "12s", "")
	ask("high0", "15s", "high") // (15 - 2) / 1.25 = 10.4
	ask("normal0", "15s", "")   // of which normal ones have seven eighths
	ask("low0", "20s", "low")
	e := q.refused("short0", 429, CauseBacklog)
	for _, want := range []string{"about 9.7s", "plan order takes 2s", "12s left"} {
		if !strings.Contains(e.Description, want) {
			t.Errorf("%q does not say %q", e.Description, want)
		}
	}
	if e.Retry < retryWait || e.Retry > 15*time.Second {
		t.Errorf("it may come again after %v", e.Retry)
	}
	q.refused("normal0", 429, CauseBacklog)
	q.refused("low0", 429, CauseBacklog)
	for id, change := range map[string]func(*Request, *core.Plan){
		"start0": func(r *Request, _ *core.Plan) { r.StartAt = "1s" },
		"off0":   func(_ *Request, p *core.Plan) { p.Admission = core.AdmissionOff },
		"warn0":  func(_ *Request, p *core.Plan) { p.Admission = core.AdmissionWarn },
	} {
		req := q.request(id)
		req.CompleteBy = "5s"
		change(&req, q.plans.now["order"])
		q.door.Submit(q.now, req)
		q.plans.now["order"].Admission = core.AdmissionQueue
	}
	for _, id := range []string{"enough0", "high0", "start0", "off0", "warn0"} {
		if len(q.answers[id]) > 0 {
			t.Errorf("%s is refused: %v", id, q.answers[id][0].Err)
		}
	}
}

// TestAcceptedIsNotRefused: who asks again about what was accepted is not told that there is no room for it.
func TestAcceptedIsNotRefused(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) { cfg.Taken = nobody{} })
	q.tell()
	q.offer(12_000)
	q.pass(2 * time.Second)
	again, other := q.request("x60000"), q.request("other0")
	again.CompleteBy, other.CompleteBy = "5s", "5s"
	delete(q.answers, "x60000")
	q.door.Submit(q.now, again)
	q.door.Submit(q.now, other)
	q.refused("other0", 429, CauseBacklog)
	if len(q.answers["x60000"]) > 0 {
		t.Errorf("what was accepted is refused: %v", q.answers["x60000"][0].Err)
	}
}

// nobody is a store without tasks.
type nobody struct{}

func (nobody) Look(_ int, _ string, done func(*core.Existing, error)) bool {
	done(nil, nil)
	return true
}

// TestRefusedComeAgainInTurn: those who are refused are told times that are as far apart as submissions begin.
func TestRefusedComeAgainInTurn(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.offer(60_000)
	q.pass(2 * time.Second)
	var last time.Duration
	for i := range 1000 {
		id := fmt.Sprintf("late%d0", i)
		q.submit(q.now, id)
		e := q.refused(id, 429, CauseBacklog)
		if e.Retry <= last {
			t.Fatalf("refused one %d may come again after %v, the one before after %v", i, e.Retry, last)
		}
		last = e.Retry
	}
	first := q.answers["late00"][0].Err.Retry
	if apart := last - first; apart < 900*time.Millisecond || apart > 1100*time.Millisecond {
		t.Errorf("1000 of 1000 a second are told to come within %v", apart)
	}
}

// TestPlacesAreForThoseWhoCanCome: under three times what begins, by clients that never come again, one that does is not told to
// come in minutes: the virtual queue keeps no place that is later than the deadline.
//
// covers: I6
func TestPlacesAreForThoseWhoCanCome(t *testing.T) {
	q := newQueueRig(t, 300, nil)
	q.plans.now["order"].CompleteBy = 15 * time.Second
	q.tell()
	for range 4 * 60 {
		q.offer(225)
		q.pass(250 * time.Millisecond)
	}
	q.offer(600)
	e := q.refused(fmt.Sprintf("x%d0", q.n), 429, CauseBacklog)
	if e.Retry > 15*time.Second || e.Retry < time.Second {
		t.Errorf("after a minute it may come again after %v", e.Retry)
	}
}

// TestWaitWhileNothingMoves: while its scheduler says nothing, or reads nothing, the wait grows.
func TestWaitWhileNothingMoves(t *testing.T) {
	for name, still := range map[string]func(*queueRig){"silent": func(*queueRig) {}, "still": (*queueRig).tell} {
		q := newQueueRig(t, 1000, nil)
		q.tell()
		q.offer(8000)
		q.pass(2 * time.Second)
		before := q.wait()
		for range 40 {
			q.now = q.now.Add(250 * time.Millisecond)
			still(q)
		}
		if more := q.wait() - before; more < 8*time.Second || more > 10*time.Second {
			t.Errorf("%s for 10 s: the wait has grown by %v", name, more)
		}
		q.pass(250 * time.Millisecond)
		if q.wait() > before {
			t.Errorf("%s, and goes on: the wait is %v, was %v before", name, q.wait(), before)
		}
	}
}

// TestWaitBeforeTheFirstReport: what was taken before any scheduler said anything is no standstill when one does.
func TestWaitBeforeTheFirstReport(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.offer(10)
	q.tell()
	if wait := q.wait(); wait != 0 {
		t.Errorf("the wait is %v", wait)
	}
	q.now = q.now.Add(5 * time.Second)
	q.plans.now["order"].CompleteBy = 3 * time.Second
	q.submit(q.now, "try0", "late0") // one a second is let in, to see whether it still stands
	if e := q.refused("late0", 429, CauseBacklog); e.Retry != retryBacklog {
		t.Errorf("behind a standstill it may come again after %v", e.Retry)
	}
}

// TestWaitOfOtherDoors: what other doors have put into the stream is before it too.
func TestWaitOfOtherDoors(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.offer(8000)
	for range 8 { // of each thousand that are read, half are of this door
		q.now = q.now.Add(250 * time.Millisecond)
		for own := int64(0); own < 125; q.owner.Cursor++ {
			own += q.stored[q.owner.Cursor]
			q.owner.Read += 2 * q.stored[q.owner.Cursor]
			q.owner.Begun += 2 * q.stored[q.owner.Cursor]
		}
		q.tell()
	}
	if wait := q.wait(); wait < 12*time.Second || wait > 16*time.Second {
		t.Errorf("the wait is %v, want 14 s: 7000 of this door, and as many of others, at 1000 a second", wait)
	}
}

// TestWaitOfATakenOverPartition: a queue is its new owner's, and what the former one says of it counts no more.
func TestWaitOfATakenOverPartition(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.offer(8000)
	q.pass(2 * time.Second)
	former := q.owner
	next := former
	next.Epoch, next.Read, next.Begun = 2, 0, 0
	q.door.Report("n2", []core.Reading{next})
	q.door.Report("n1", []core.Reading{former})
	q.door.Flush(q.now)
	w := &q.door.waits
	if w.lines[0].owner.Load() != w.owners["n2"] || w.owners["n1"].mine.Load() != 0 || w.owners["n2"].mine.Load() != w.lines[0].stored || w.lines[0].stored < 5000 {
		t.Errorf("of n1 %d, of n2 %d, stored %d", w.owners["n1"].mine.Load(), w.owners["n2"].mine.Load(), w.lines[0].stored)
	}
}

// TestWaitBehindAStreamThatWasReplaced: where a partition's new owner begins before what was read, positions of before say
// nothing.
func TestWaitBehindAStreamThatWasReplaced(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.offer(8000)
	q.pass(2 * time.Second)
	q.owner = core.Reading{Epoch: 2}
	q.tell()
	if l := &q.door.waits.lines[0]; l.stored != 0 || l.owner.Load().mine.Load() != 0 {
		t.Errorf("%d are still before what comes now", l.stored)
	}
}

// TestStandstillIsTried: what is before a submission may be of a stream that is no more, of which nobody says so. What is let
// in to see passes it, and with it all that was before.
func TestStandstillIsTried(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.log.seq = 1000 // of a stream that ends here
	q.offer(20)
	q.log.seq, q.stored, q.owner.Epoch = 0, nil, 2 // another one, of which nothing was read
	q.plans.now["order"].CompleteBy = 3 * time.Second
	got := len(q.log.got)
	for range 40 {
		q.now = q.now.Add(250 * time.Millisecond)
		q.tell()
	}
	if taken := q.offer(5); taken != 1 {
		t.Fatalf("%d of 5 were taken by a partition that seems to stand still", taken)
	}
	if mine := q.door.waits.lines[0].owner.Load().mine.Load(); mine != 0 {
		t.Errorf("%d of a partition that stands still are before what comes to others", mine)
	}
	if len(q.log.got) != got+1 {
		t.Fatal("it was not stored")
	}
	q.owner.Cursor, q.owner.Read, q.owner.Begun = q.log.seq, 1, 1
	q.tell()
	if wait := q.wait(); wait != 0 || q.door.waits.lines[0].stored != 0 {
		t.Errorf("the wait is %v, and %d are before what comes", wait, q.door.waits.lines[0].stored)
	}
}

// TestStandstillIsTriedOverHTTP: one that may pass to see whether the partition still stands is let in when its body is there.
func TestStandstillIsTriedOverHTTP(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.log.seq = 1000 // of a stream that ends here
	q.offer(20)
	q.log.seq, q.stored, q.owner.Epoch = 0, nil, 2
	q.plans.now["order"].CompleteBy = 3 * time.Second
	taken := 0
	for i := range 80 {
		q.now = q.now.Add(250 * time.Millisecond)
		q.tell()
		if i >= 40 && q.put() {
			taken++
		}
	}
	if taken < 9 || taken > 11 {
		t.Errorf("%d of 40 were taken in ten seconds by a partition that seems to stand still, want about one a second", taken)
	}
}

// TestStandingQueueIsCut: a queue that does not get shorter is cut to standTarget, and opens again when it has drained; a
// burst that drains is not cut.
func TestStandingQueueIsCut(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.offer(16_000)
	for range 12 {
		q.pass(time.Second)
		q.offer(100)
	}
	if limit := q.pace().limit; limit != 0 {
		t.Fatalf("a burst that drains is cut to %v", limit)
	}
	refused := 0
	for range 4 * 240 {
		refused += 375 - q.offer(375) // 1.5 times what it begins
		q.pass(250 * time.Millisecond)
	}
	if wait := q.wait(); wait > 3*time.Second || refused < 80_000 {
		t.Errorf("after four minutes at 1.5 times the rate the wait is %v, and %d were refused", wait, refused)
	}
	if e := q.answers[fmt.Sprintf("x%d0", q.n)]; len(e) == 0 || !strings.Contains(e[0].Err.Description, "does not get less") {
		t.Errorf("the newest was answered %v", e)
	}
	q.pass(200 * time.Second)
	if limit := q.pace().limit; limit != 0 {
		t.Errorf("long after, the limit is %v", limit)
	}
}

// TestLimitIsOfTheQueueThatStands: a limit that was made while the wait was long, as when the scheduler had slowed down for a
// while, does not keep a queue that stands now as long as deadlines allow.
//
// covers: I6
func TestLimitIsOfTheQueueThatStands(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.plans.now["order"].CompleteBy = 3 * time.Minute
	q.tell()
	load := func(seconds int) {
		for range 4 * seconds {
			q.offer(375) // 1.5 times what it begins
			q.pass(250 * time.Millisecond)
		}
	}
	load(8)
	q.rate = 60
	load(20)
	if limit := q.pace().limit; limit < time.Minute {
		t.Fatalf("the limit of a slow scheduler's queue is %v", limit)
	}
	q.rate = 1000
	load(60)
	if wait := q.wait(); wait > 3*time.Second {
		t.Errorf("a minute after it is fast again the wait is %v, the limit %v", wait, q.pace().limit)
	}
}

// TestBurstThatDrainsIsNotCut: after a spike whose queue drains, however slowly, all is taken that has the time.
func TestBurstThatDrainsIsNotCut(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) { cfg.PackItems = 50 })
	q.tell()
	for range 4 * 20 { // longer than the queue may stand
		q.offer(900)
		q.pass(250 * time.Millisecond)
	}
	q.pass(3 * time.Second)
	for i := range 4 * 60 {
		if taken := q.offer(200); taken < 200 {
			t.Fatalf("%.1f s after the spike %d of 200 are refused: the wait is %v, the limit %v", float64(i)/4, 200-taken, q.wait(), q.pace().limit)
		}
		q.pass(250 * time.Millisecond)
	}
}

// put submits as over HTTP: it is asked before the body is read, and again with it. It reports whether it was taken.
func (q *queueRig) put() bool {
	q.n++
	req := q.request(fmt.Sprintf("x%d0", q.n))
	if q.door.Late(q.now, &req.Form) != nil {
		return false
	}
	q.door.Submit(q.now, req)
	return len(q.answers[req.ID]) == 0
}

// TestAskedAheadCountsOnce: a submission that is judged before its body is read, and again with it, is one: a burst that drains
// is not cut because twice as much seems to be asked for.
func TestAskedAheadCountsOnce(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) { cfg.PackItems = 50 })
	q.tell()
	q.offer(18_000)
	q.pass(2 * time.Second)
	for i := range 4 * 60 {
		for range 200 {
			if !q.put() {
				t.Fatalf("%.1f s after the burst one is refused: the wait is %v, the limit %v", float64(i)/4, q.wait(), q.pace().limit)
			}
		}
		q.flush()
		q.pass(250 * time.Millisecond)
	}
}

// TestQuietDoorLearnsNothingSlow: while little comes, what begins in a time says nothing of how fast the scheduler is.
func TestQuietDoorLearnsNothingSlow(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	q.tell()
	q.offer(4000)
	q.pass(6 * time.Second)
	rate := q.pace().rate
	for range 400 {
		q.offer(3)
		q.pass(250 * time.Millisecond)
	}
	if now := q.pace().rate; rate < 900 || now < rate {
		t.Errorf("the rate is %.0f, was %.0f", now, rate)
	}
}

// TestSlowCycles: how fast a scheduler is does not depend on how much it does at a time, nor on how long it stood still.
func TestSlowCycles(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) { cfg.PackItems = 50 })
	q.tell()
	q.offer(40_000)
	for range 12 {
		for range 4 {
			q.now = q.now.Add(250 * time.Millisecond)
			q.tell()
		}
		for room := int64(1250); room > 0; q.owner.Cursor++ {
			is := q.stored[q.owner.Cursor]
			q.owner.Read, q.owner.Begun, room = q.owner.Read+is, q.owner.Begun+is, room-is
		}
		q.now = q.now.Add(250 * time.Millisecond)
		q.tell()
	}
	if rate := q.pace().rate; rate < 900 || rate > 1100 {
		t.Errorf("the rate is %.0f, want 1000: 1250 begin in each cycle of 1.25 s", rate)
	}
	before := q.pace().rate
	for range 40 {
		q.now = q.now.Add(250 * time.Millisecond)
		q.tell()
	}
	q.pass(250 * time.Millisecond)
	if rate := q.pace().rate; rate < before*9/10 {
		t.Errorf("after it stood still for 10 s the rate is %.0f, was %.0f", rate, before)
	}
}

// TestReportsThatComeAtOnce: a door that was held up takes a scheduler for no slower than it is.
func TestReportsThatComeAtOnce(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) { cfg.PackItems = 50 })
	q.tell()
	q.offer(20_000)
	q.pass(6 * time.Second)
	before := q.pace().rate
	for range 4 {
		q.read()
		q.door.Report("n1", []core.Reading{q.owner})
	}
	q.door.Flush(q.now)
	if rate := q.pace().rate; rate < before*95/100 {
		t.Errorf("after four reports in one second that came at its end the rate is %.0f, was %.0f", rate, before)
	}
}

// TestClockSetBack: when the machine's clock is set back, what is known of a queue goes on from there.
func TestClockSetBack(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) { cfg.TenantLabel = "tenant" })
	q.tell()
	q.offer(12_000)
	q.pass(3 * time.Second)
	q.offer(500)
	q.now = q.now.Add(-time.Hour)
	q.tell()
	q.pass(3 * time.Second)
	o := q.door.waits.lines[0].owner.Load()
	if rate := q.pace().rate; !(o.asked >= 0 && o.asked < 3000) || o.given.has < 25*time.Second || o.given.has > 30*time.Second || rate < 900 || rate > 1100 {
		t.Errorf("%.0f a second were asked for, which have %v, and %.0f begin", o.asked, o.given.has, rate)
	}
	if at := core.Instant(q.door.shares.at.Load()); q.now.Sub(at).Abs() > time.Second {
		t.Errorf("the tenants' parts were reckoned at %v, and it is %v", at.Time(), q.now.Time())
	}
	before := q.wait()
	for range 40 {
		q.now = q.now.Add(250 * time.Millisecond)
		q.tell()
	}
	if more := q.wait() - before; more < 8*time.Second {
		t.Errorf("while it stands still for 10 s the wait has grown by %v", more)
	}
}

// TestSlowStart: what an owner begins in its first second says little of how fast it is, and keeps nobody out for minutes.
func TestSlowStart(t *testing.T) {
	q := newQueueRig(t, 8, func(cfg *Config) { cfg.PackItems = 1 })
	q.tell()
	q.offer(500)
	q.pass(time.Second) // eight
	q.rate = 1000
	if got := q.offer(10); got != 10 {
		t.Fatalf("%d of 10 were taken; the wait is %v", got, q.wait())
	}
	q.pass(time.Second)
	if rate := q.pace().rate; rate < 200 {
		t.Errorf("the rate is %.0f", rate)
	}
	q = newQueueRig(t, 8, func(cfg *Config) { cfg.PackItems = 1 })
	q.tell()
	q.offer(500)
	q.pass(3 * time.Second)
	if rate := q.pace().rate; rate < 4 || rate > 12 {
		t.Errorf("the rate of an owner that stays slow is %.0f, want 8", rate)
	}
}

// TestQueueOfMessagesIsBounded: however many messages are unread, what is kept of them is bounded, and adds up.
func TestQueueOfMessagesIsBounded(t *testing.T) {
	w := newWaits(1)
	w.report(epoch, "n1", []core.Reading{{Epoch: 1}})
	for i := range 20_000 {
		w.lines[0].letIn(2)
		w.lines[0].put(uint64(i+1), 2)
	}
	l := &w.lines[0]
	if len(l.list)-l.head > stretchesMost || l.owner.Load().mine.Load() != 40_000 {
		t.Errorf("%d stretches of %d submissions", len(l.list)-l.head, l.owner.Load().mine.Load())
	}
	w.report(epoch, "n1", []core.Reading{{Epoch: 1, Cursor: 20_000, Read: 40_000}})
	if l.owner.Load().mine.Load() != 0 || l.stored != 0 {
		t.Errorf("%d are left", l.owner.Load().mine.Load())
	}
}

// TestWaitOfALongQueue: behind minutes of small messages the wait is what it is at every report, though what is kept of them is
// merged again and again: this door's part is known from what was read, however little of that there was.
//
// covers: I6
func TestWaitOfALongQueue(t *testing.T) {
	const comes, goes = 500, 250 // messages of 4 in a quarter of a second
	w := newWaits(1)
	now, put, read := core.Instant(epoch), 0, 0
	tell := func() {
		w.report(now, "n1", []core.Reading{{Epoch: 1, Cursor: uint64(read), Read: int64(4 * read), Begun: int64(4 * read)}})
	}
	tell()
	for range 4 * 120 {
		for range comes {
			put++
			w.lines[0].letIn(4)
			w.lines[0].put(uint64(put), 4)
		}
		now, read = now.Add(250*time.Millisecond), read+goes
		tell()
		is := time.Duration(put-read) * time.Second / (4 * goes)
		if got := w.lines[0].wait(now); is > 5*time.Second && (got < is*8/10 || got > is*12/10) {
			t.Fatalf("after %v the wait is taken for %v, want %v: this door's part for %.2f, want 1", now.Sub(epoch), got, is, w.owners["n1"].pace.Load().share)
		}
	}
}

// TestWaitOfAnHour: as long a queue as a plan may have, first of large messages and then of small ones, is known as well while it
// is read.
//
// covers: I6
func TestWaitOfAnHour(t *testing.T) {
	const rate, large, small = 1000, 125, 5
	w := newWaits(1)
	now, read := core.Instant(epoch), int64(0)
	w.report(now, "n1", []core.Reading{{Epoch: 1}})
	var sizes []int64
	for left := int64(rate * 3600); left > 0; left -= sizes[len(sizes)-1] {
		sizes = append(sizes, large)
		if left <= rate*1800 {
			sizes[len(sizes)-1] = small
		}
		w.lines[0].letIn(sizes[len(sizes)-1])
		w.lines[0].put(uint64(len(sizes)), sizes[len(sizes)-1])
	}
	cursor, room := 0, int64(0)
	for range 4 * 120 {
		now = now.Add(250 * time.Millisecond)
		for room += rate / 4; room >= sizes[cursor]; cursor++ {
			read, room = read+sizes[cursor], room-sizes[cursor]
		}
		w.report(now, "n1", []core.Reading{{Epoch: 1, Cursor: uint64(cursor), Read: read, Begun: read}})
		is := time.Duration(rate*3600-read) * time.Second / rate
		if got := w.lines[0].wait(now); now.Sub(epoch) > 5*time.Second && (got < is*8/10 || got > is*12/10) {
			t.Fatalf("after %v the wait is taken for %v, want %v: this door's part for %.2f, want 1", now.Sub(epoch), got, is, w.owners["n1"].pace.Load().share)
		}
	}
}

// TestTurnIsWaitedFor: where a plan's time counts from a task's turn, a submission is refused by how long it may wait for it
// alone, whatever its plan takes and however long the queue has stood; one that names a deadline is held to that.
//
// covers: I6
func TestTurnIsWaitedFor(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) {
		cfg.Needs = func(*core.Plan) time.Duration { return 5 * time.Second }
	})
	p := q.plans.now["order"]
	p.CompleteBy, p.QueueFor = 6*time.Second, time.Minute
	q.tell()
	q.offer(12_000)
	q.pass(2 * time.Second)
	q.pace().limit = standTarget // as of a queue that has stood
	ask := func(id string, change func(*Request)) {
		req := q.request(id)
		change(&req)
		q.door.Submit(q.now, req)
	}
	ask("turn0", func(*Request) {})
	ask("aged0", func(r *Request) { r.Ago = time.Hour }) // of an outbox
	ask("named0", func(r *Request) { r.CompleteBy = "8s" })
	if e := q.refused("named0", 429, CauseBacklog); !strings.Contains(e.Description, "left until the deadline") {
		t.Error(e.Description)
	}
	for _, id := range []string{"turn0", "aged0"} {
		if len(q.answers[id]) > 0 {
			t.Errorf("%s is refused: %v", id, q.answers[id][0].Err)
		}
	}
	p.QueueFor = 13 * time.Second // 13 / 1.25 = 10.4
	ask("high0", func(r *Request) { r.Labels = core.PriorityLabel + "=high" })
	ask("normal0", func(*Request) {})
	e := q.refused("normal0", 429, CauseBacklog)
	for _, want := range []string{"it would begin in about 9.7s", "13s as queue_for of plan order it may wait 9.1s at most"} {
		if !strings.Contains(e.Description, want) {
			t.Errorf("%q does not say %q", e.Description, want)
		}
	}
	if e.Retry < retryWait || e.Retry > 15*time.Second {
		t.Errorf("it may come again after %v", e.Retry)
	}
	if len(q.answers["high0"]) > 0 {
		t.Errorf("high0 is refused: %v", q.answers["high0"][0].Err)
	}
}

// TestLongTurnIsWaitedFor: a wait of more than waitMost is told apart, and is taken where a plan lets its tasks wait for it.
func TestLongTurnIsWaitedFor(t *testing.T) {
	q := newQueueRig(t, 1000, nil)
	p := q.plans.now["order"]
	p.CompleteBy = 10 * time.Hour
	q.tell()
	q.offer(9_000)
	q.pass(2 * time.Second)
	q.pace().rate = float64(q.door.waits.lines[0].owner.Load().mine.Load()) / (15 * time.Minute).Seconds()
	if wait := q.wait(); wait < 14*time.Minute || wait > 16*time.Minute {
		t.Fatalf("the wait is %v, want some 15 min", wait)
	}
	q.submit(q.now, "most0")
	q.refused("most0", 429, CauseBacklog)
	p.QueueFor = core.QueueForMax
	q.submit(q.now, "turn0")
	if len(q.answers["turn0"]) > 0 {
		t.Errorf("it is refused: %v", q.answers["turn0"][0].Err)
	}
}

// TestNeedsOfOneWithLittleLeft: what tasks of a plan take is believed up to a quarter of the time that submissions usually have,
// not of what is left to one that comes again: it would begin, and be undone.
func TestNeedsOfOneWithLittleLeft(t *testing.T) {
	q := newQueueRig(t, 1000, func(cfg *Config) {
		cfg.Needs = func(*core.Plan) time.Duration { return 2 * time.Second }
	})
	q.plans.now["order"].CompleteBy = 8 * time.Second
	q.tell()
	q.offer(4000)
	q.pass(2 * time.Second)
	q.offer(1000) // their time is looked at: something waits
	q.pass(2 * time.Second)
	if wait := q.wait(); wait < 700*time.Millisecond || wait > 1100*time.Millisecond {
		t.Fatalf("the wait is %v, want some 0.9 s", wait)
	}
	ask := func(id, by string) {
		req := q.request(id)
		req.CompleteBy, req.Labels = by, core.PriorityLabel+"=high"
		q.door.Submit(q.now, req)
	}
	ask("again0", "2s") // a quarter of that and 1.25 times the wait is less
	if e := q.refused("again0", 429, CauseBacklog); !strings.Contains(e.Description, "plan order takes 2s") {
		t.Error(e.Description)
	}
	ask("enough0", "4s")
	if len(q.answers["enough0"]) > 0 {
		t.Errorf("it is refused: %v", q.answers["enough0"][0].Err)
	}
}
