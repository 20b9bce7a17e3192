package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// covers: S17
func TestQuietDoorPublishesAtOnce(t *testing.T) {
	r := newRig(t, nil)
	r.submit(epoch, "a1")
	if due := r.door.Due(epoch); due != epoch {
		t.Errorf("due %d, want now", due)
	}
	r.door.Flush(epoch)
	if len(r.log.got) != 1 || r.log.got[0].partition != 1 {
		t.Fatalf("messages %+v", r.log.got)
	}
	r.log.store(0)
	r.door.Flush(epoch)
	if a := r.answer("a1"); a.Err != nil || a.Stream != "TASKS" || a.Seq != 1 || a.Partition != 1 || a.Task != "a1" {
		t.Errorf("answer %+v", a)
	}
	r.idle()
	if due := r.door.Due(epoch); due != 0 {
		t.Errorf("an idle door is due at %d", due)
	}
}

func TestFullPacksGoWithoutFlush(t *testing.T) {
	r := newRig(t, nil)
	r.submit(epoch, ids("a", 63, 1)...)
	if len(r.log.got) != 0 {
		t.Fatalf("%d messages before the pack is full", len(r.log.got))
	}
	r.submit(epoch, "last-1")
	if len(r.log.got) != 1 || len(r.log.got[0].ids) != 64 {
		t.Fatalf("messages %+v", r.log.got)
	}
	r.submit(epoch, ids("b", 130, 2)...)
	if len(r.log.got) != 3 {
		t.Errorf("%d messages, want 3: two more full ones", len(r.log.got))
	}
}

func TestPackBytes(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.PackBytes = 1001
		c.SizeOf = func(s *core.Submission) int { return len(s.Input) }
	})
	send := func(id string, size int) {
		req := r.request(id)
		req.Input = jsonOf(size)
		r.door.Submit(epoch, req)
	}
	send("a1", 600)
	send("b1", 400) // exactly full
	if len(r.log.got) != 1 || len(r.log.got[0].ids) != 2 {
		t.Fatalf("messages %+v", r.log.got)
	}
	send("c1", 600)
	send("d1", 401) // one byte too many: it opens the next pack
	if len(r.log.got) != 2 || !slices.Equal(r.log.got[1].ids, []string{"c1"}) {
		t.Fatalf("messages %+v", r.log.got)
	}
}

// The window grows with what is unanswered, up to its bound, and shrinks as
// answers come.
func TestWindow(t *testing.T) {
	tests := []struct {
		unanswered int
		want       time.Duration
	}{{1, 0}, {4, 0}, {5, 625 * time.Microsecond}, {10, 3750 * time.Microsecond}, {12, ms(5)}, {20, ms(10)}, {21, ms(10)}, {5000, ms(10)}}
	for _, tt := range tests {
		r := newRig(t, nil)
		r.submit(epoch, ids("x", tt.unanswered, 0)...)
		if got := r.door.window(r.door.streams[0]); got != tt.want {
			t.Errorf("%d unanswered: window %v, want %v", tt.unanswered, got, tt.want)
		}
	}
}

// More partitions mean more packs to fill, and longer windows.
func TestWindowByPartitions(t *testing.T) {
	for partitions, want := range map[int]time.Duration{1: ms(10), 4: ms(10), 6: ms(15), 8: ms(20), 1024: ms(20)} {
		if got := (Config{Partitions: partitions}).WithDefaults().WindowMax; got != want {
			t.Errorf("%d partitions: window %v, want %v", partitions, got, want)
		}
	}
}

// Enough packs wait for the stream: those that are not full wait too, and what
// comes meanwhile goes along.
func TestPacksFillWhileOthersFly(t *testing.T) {
	r := newRig(t, func(c *Config) { c.FlightsMax = 2 })
	late := epoch.Add(time.Second)
	r.submit(epoch, "a0", "b1", "c2", "d3")
	r.door.Flush(late)
	if len(r.log.got) != 4 {
		t.Fatalf("%d messages, want all that were open", len(r.log.got))
	}
	r.submit(late, "e2", "f3")
	later := late.Add(time.Second)
	r.door.Flush(later)
	if due := r.door.Due(later); due <= later {
		t.Errorf("due at %v, with nothing to do before an answer comes", due.Sub(epoch))
	}
	r.submit(later, "g2")
	for i := range 4 {
		// One leaves for each that comes back, the oldest first.
		if want := 4 + max(0, i-2); len(r.log.got) != want {
			t.Fatalf("%d messages after %d answers, want %d", len(r.log.got), i, want)
		}
		r.log.store(i)
		r.door.Flush(later)
	}
	if len(r.log.got) != 6 || !slices.Equal(r.log.got[4].ids, []string{"e2", "g2"}) || !slices.Equal(r.log.got[5].ids, []string{"f3"}) {
		t.Errorf("messages %+v, want two more, the first with what came meanwhile", r.log.got[4:])
	}
	r.submit(later, ids("y", r.door.cfg.PackItems, 1)...)
	if len(r.log.got) != 7 {
		t.Errorf("%d messages: a full pack does not wait", len(r.log.got))
	}
}

func TestWindowInTime(t *testing.T) {
	r := newRig(t, nil)
	r.submit(epoch, ids("x", 64, 0)...) // a full pack, and 64 unanswered
	r.submit(epoch.Add(ms(1)), "a1")
	r.submit(epoch.Add(ms(2)), "b1", "c2", "d2")
	window := ms(10) // 68 unanswered
	if due := r.door.Due(epoch.Add(ms(2))); due != epoch.Add(ms(1)+window) {
		t.Fatalf("due after %v, want %v", due.Sub(epoch), ms(1)+window)
	}
	steps := []struct {
		at       time.Duration
		messages int
	}{{ms(2), 1}, {ms(10.999), 1}, {ms(11), 3}} // the younger pack goes along
	for _, s := range steps {
		if r.door.Flush(epoch.Add(s.at)); len(r.log.got) != s.messages {
			t.Fatalf("at %v: %d messages, want %d", s.at, len(r.log.got), s.messages)
		}
	}
	if !slices.Equal(r.log.got[1].ids, []string{"a1", "b1"}) || !slices.Equal(r.log.got[2].ids, []string{"c2", "d2"}) {
		t.Errorf("packs %v and %v", r.log.got[1].ids, r.log.got[2].ids)
	}
	r.submit(epoch.Add(ms(13)), "e3")
	r.door.Flush(epoch.Add(ms(13)))
	if len(r.log.got) != 3 {
		t.Fatal("no window in a flood")
	}
	for i := range 3 { // calm: what waits goes at once
		r.log.store(i)
	}
	if r.door.Flush(epoch.Add(ms(13))); len(r.log.got) != 4 {
		t.Error("a window in a quiet door")
	}
}

// covers: D1, T4, inv1
func TestOutcomes(t *testing.T) {
	tests := []struct {
		err         error
		code, cause int
		words       string
	}{
		{fmt.Errorf("pack: %w", ErrLogDown), 503, CauseLogDown, "not stored"},
		{fmt.Errorf("pack: %w", ErrLogFull), 429, causeLogFull, "not stored"},
		{errors.New("timeout"), 504, causeOutcome, "submit again with the same id"},
		{errors.New(strings.Repeat("\xffx", 1<<20)), 504, causeOutcome, "submit again with the same id"},
	}
	for _, tt := range tests {
		r := newRig(t, nil)
		r.submit(epoch, "a1", "b1")
		r.door.Flush(epoch)
		r.log.got[0].done(0, tt.err)
		r.door.Flush(epoch)
		for _, id := range []string{"a1", "b1"} {
			e := r.refused(id, tt.code, tt.cause)
			if !e.Retryable() || e.Retry <= 0 || !strings.Contains(e.Description, tt.words) || len(e.Description) > descriptionBytesMax+8 {
				t.Errorf("%v: retryable %v, retry %v, %q", tt.err, e.Retryable(), e.Retry, e.Description)
			}
		}
		if n := r.door.Stats(epoch).Refused[tt.cause]; n != 2 {
			t.Errorf("%d counted, want 2", n)
		}
		r.idle()
	}
}

// A stream that says nothing is unknown after PublishMax; what it says later
// changes nothing.
//
// covers: E9, D1, inv1
func TestSilentStream(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PublishMax = 4 * time.Second })
	r.submit(epoch, "a1")
	r.door.Flush(epoch)
	r.submit(epoch.Add(time.Second), "b2")
	r.door.Flush(epoch.Add(time.Second))
	if due := r.door.Due(epoch.Add(time.Second)); due != epoch.Add(4*time.Second) {
		t.Errorf("due after %v", due.Sub(epoch))
	}
	r.door.Flush(epoch.Add(4*time.Second - 1))
	if len(r.answers) != 0 {
		t.Fatal("gave up before the time")
	}
	r.door.Flush(epoch.Add(4 * time.Second))
	if e := r.refused("a1", 504, causeOutcome); !strings.Contains(e.Description, "did not answer in time") {
		t.Error(e)
	}
	r.log.store(0)
	r.log.store(1)
	r.log.store(1) // a stream that confirms twice
	r.door.Flush(epoch.Add(4 * time.Second))
	r.answer("a1")
	if r.answer("b2").Err != nil || r.door.Stats(epoch).LateDone != 2 {
		t.Errorf("b2 %+v, %d late", r.answer("b2"), r.door.Stats(epoch).LateDone)
	}
	r.idle()
}

// covers: inv1
func TestRecycledPackIsNotAnsweredByAnOldOutcome(t *testing.T) {
	r := newRig(t, nil)
	r.submit(epoch, "a1")
	r.door.Flush(epoch)
	r.log.store(0)
	r.door.Flush(epoch)
	r.submit(epoch, "b2") // in the memory of the first pack
	r.door.Flush(epoch)
	r.log.store(0)
	r.door.Flush(epoch)
	if len(r.answers["b2"]) != 0 {
		t.Fatal("answered by the outcome of another pack")
	}
	r.log.store(1)
	r.door.Flush(epoch)
	r.answer("b2")
}

// covers: E14, I6
func TestFullDoor(t *testing.T) {
	t.Run("items", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.ItemsMax = 3 })
		r.submit(epoch, "a1", "b1", "c1", "d1")
		if e := r.refused("d1", 429, CauseFull); e.Retry <= 0 || !strings.Contains(e.Description, "3 unanswered requests") {
			t.Errorf("retry %v: %s", e.Retry, e)
		}
		r.door.Flush(epoch)
		r.log.store(0)
		r.door.Flush(epoch)
		r.submit(epoch, "e1") // room again
		if len(r.answers["e1"]) != 0 {
			t.Errorf("refused though there is room: %v", r.answers["e1"])
		}
	})
	t.Run("bytes", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.BytesMax = 1000 })
		for _, id := range []string{"a1", "b1"} {
			req := r.request(id)
			req.Input = jsonOf(500)
			r.door.Submit(epoch, req)
		}
		r.refused("b1", 429, CauseFull)
		r.door.Flush(epoch)
		r.log.store(0)
		r.door.Flush(epoch)
		r.idle()
		if n := r.door.Stats(epoch).Refused[CauseFull]; n != 1 {
			t.Errorf("%d counted", n)
		}
	})
}

// classed is a submission of a class.
func (r *rig) classed(id, class string) {
	req := r.request(id)
	req.Labels = "k=v, " + core.PriorityLabel + "=" + class
	r.door.Submit(epoch, req)
}

// TestClassesAtTheDoor: low submissions are refused when half of what the door may hold is in use, normal ones at seven
// eighths, high ones at last; and so it is with what the owner has not read.
func TestClassesAtTheDoor(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ItemsMax = 8 })
	for i := range 5 {
		r.classed(fmt.Sprintf("low%d", i), "low")
	}
	r.refused("low4", 429, CauseFull)
	for i := range 4 {
		r.submit(epoch, fmt.Sprintf("normal%d", i))
	}
	if e := r.refused("normal3", 429, CauseFull); !strings.Contains(e.Description, "priority normal: the limits are 7 unanswered requests") {
		t.Error(e)
	}
	r.classed("low9", "low")
	r.refused("low9", 429, CauseFull)
	r.classed("high0", "high")
	r.classed("high1", "high")
	if e := r.refused("high1", 429, CauseFull); !strings.Contains(e.Description, "priority high: the limits are 8 unanswered requests") {
		t.Error(e)
	}
	if len(r.answers) != 4 {
		t.Errorf("%d answered, want those 4 that were refused", len(r.answers))
	}
}

// TestClassIsChecked: one that is not known is refused, with what is allowed.
func TestClassIsChecked(t *testing.T) {
	r := newRig(t, nil)
	r.classed("a1", "urgent")
	if e := r.refused("a1", 400, CauseLabels); !strings.Contains(e.Description, `key duly-priority: priority "urgent", want high, normal or low`) {
		t.Error(e)
	}
}

func TestClose(t *testing.T) {
	r := newRig(t, nil)
	r.submit(epoch, ids("x", 70, 0)...)
	r.submit(epoch, "a1", "b2")
	stranger := r.request("s1")
	stranger.Type = "unknown"
	r.door.Submit(epoch, stranger)
	r.door.Close(epoch)
	r.refused("s1", 503, CauseStopping)
	if len(r.log.got) != 4 {
		t.Errorf("%d messages, want 4: what was packed goes out", len(r.log.got))
	}
	r.submit(epoch, "late1")
	r.refused("late1", 503, CauseStopping)
	if r.door.Idle() {
		t.Error("idle with outcomes missing")
	}
	for i := range r.log.got {
		r.log.store(i)
	}
	r.door.Flush(epoch)
	if a := r.answer("b2"); a.Err != nil {
		t.Error(a.Err)
	}
	r.idle()
}
