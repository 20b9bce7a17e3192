package node

import (
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
)

// TestClockKeepsToTheServers: a clock that is little off is left alone, one that is more is corrected.
//
// covers: B9
func TestClockKeepsToTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wrong := range []time.Duration{90 * time.Second, -90 * time.Second, time.Second, -time.Second} {
			c := newClock(func() time.Time { return time.Now().Add(wrong) })
			c.adjust(wrong)
			want := time.Duration(0)
			if wrong.Abs() <= clockSlack {
				want = wrong
			}
			if got := time.Until(c.time()); got != want {
				t.Errorf("a clock %v wrong is %v wrong after the comparison, want %v", wrong, got, want)
			}
			c.adjust(0)
			if got := time.Until(c.time()); got != wrong {
				t.Errorf("a clock that the server agrees with is changed by %v", got-wrong)
			}
		}
	})
}

// TestClockIsNotSet: a machine's clock that is set while the node runs changes nothing until clocks are compared, which
// is asked for at once.
//
// covers: B9
func TestClockIsNotSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := time.Duration(0)
		// Setting the wall clock leaves the monotonic one alone; the reading of a moment ago tells them apart.
		began := time.Now()
		wall := func(at time.Time) time.Time { return at.Round(0).Add(set) }
		c := newClock(time.Now)
		read := func() time.Duration { return c.timeAt(time.Now(), wall(time.Now())).Sub(began.Round(0)) }
		<-time.After(time.Minute)
		set = 90 * time.Second
		if got := read(); got != time.Minute {
			t.Errorf("a minute after the beginning it is %v", got)
		}
		<-time.After(time.Minute)
		if got := read(); got != 2*time.Minute {
			t.Errorf("two minutes after the beginning it is %v", got)
		}
		select {
		case <-c.stepped:
		default:
			t.Error("no comparison is asked for")
		}
		for range 100 { // slewing is no step
			set += 10 * time.Millisecond
			<-time.After(time.Minute)
			read()
			c.drift.Store(int64(c.moved(time.Now(), wall(time.Now()))))
		}
		select {
		case <-c.stepped:
			t.Error("a slow correction of the clock counts as a step")
		default:
		}
	})
}

// TestApart: what an answer that took long cannot tell is not held against a clock.
func TestApart(t *testing.T) {
	at := time.Now().Round(0)
	for _, tt := range []struct{ other, want time.Duration }{
		{0, 0}, {5 * time.Second, 0}, {10 * time.Second, 0}, {-time.Second, time.Second}, {12 * time.Second, -2 * time.Second},
	} {
		if got := apart(at, at.Add(10*time.Second), at.Add(tt.other)); got != tt.want {
			t.Errorf("asked at 0s, answered at 10s with %v: ahead by %v, want %v", tt.other, got, tt.want)
		}
	}
}

// TestClamp: a submission is not from after it was stored, nor from long before.
//
// covers: B9
func TestClamp(t *testing.T) {
	stored := core.InstantOf(time.Now())
	for _, tt := range []struct{ at, want time.Duration }{
		{0, 0}, {-time.Second, -time.Second}, {-submissionAge, -submissionAge},
		{time.Millisecond, 0}, {90 * time.Second, 0}, {-submissionAge - time.Millisecond, 0}, {-90 * time.Second, 0},
	} {
		s := core.Submission{At: stored.Add(tt.at)}
		clamp(&s, stored)
		if got := s.At.Sub(stored); got != tt.want {
			t.Errorf("a submission from %v counts as from %v, want %v", tt.at, got, tt.want)
		}
	}
}
