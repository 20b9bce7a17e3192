package main

import (
	"testing"
	"time"
)

// Every arrival has its time whatever became of those before, and is due at it.
//
// covers: T10
func TestScheduleIsFixed(t *testing.T) {
	s := newSchedule([]segment{{Rate: 1000, For: 2 * time.Second, Warm: true}, {Rate: 50_000, For: time.Second}, {Rate: 3, For: 2 * time.Second}})
	if s.total != 2000+50_000+6 || s.length != 5*time.Second {
		t.Fatalf("%d arrivals in %v", s.total, s.length)
	}
	for i := range s.total {
		at := s.at(i)
		if i > 0 && at < s.at(i-1) {
			t.Fatalf("arrival %d at %v, before the one before", i, at)
		}
		if due := s.due(at); due < i+1 {
			t.Fatalf("at %v %d arrivals are due, want %d at least", at, due, i+1)
		}
		if due := s.due(at - time.Microsecond); due > i+1 {
			t.Fatalf("before %v %d arrivals are due, want %d at most", at, due, i+1)
		}
	}
	for i, want := range map[int]int{0: 0, 1999: 0, 2000: 1, 51_999: 1, 52_000: 2, 52_005: 2} {
		if got := s.segmentOf(i); got != want {
			t.Errorf("arrival %d in segment %d, want %d", i, got, want)
		}
	}
	if s.due(time.Hour) != s.total {
		t.Error("at the end not all are due")
	}
}

func TestNewIDsAreUUIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		var id [idBytes]byte
		newID(id[:])
		s := string(id[:])
		if seen[s] || s[8] != '-' || s[13] != '-' || s[14] != '4' || s[18] != '-' || s[23] != '-' {
			t.Fatalf("id %s", s)
		}
		seen[s] = true
	}
}
