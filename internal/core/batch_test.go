package core

import (
	"testing"
	"time"
)

// What a takeover makes of a database that went back: which submissions may have run in
// the life that is lost. Of a stream that has lost what would be read again, too, it
// cannot say, so for a day all that is submitted again may have run.
//
// covers: A4
func TestTakeAfterWhatIsLost(t *testing.T) {
	const at = Instant(1_000_000_000)
	gone := Evidence{Epoch: 4, Commit: 9, At: at}
	cut, before := Evidence{Epoch: 6, Commit: 9, At: at, Rewound: 5}, Evidence{Epoch: 6, Commit: 9, At: at, Rewound: 4}
	row := PartitionState{Epoch: 4, LastCommit: 7, Cursor: 10, NextNumber: 5, Stream: "s1/c1"}
	unread := row
	unread.Epoch, unread.LastCommit, unread.WentBackAt, unread.WentBackNumber, unread.WentBackUntil = 5, 20, at-1, 5, 30
	read := unread
	read.Cursor = 30
	for _, c := range []struct {
		name   string
		row    PartitionState
		claim  Claim
		origin uint64 // a submission up to here may have run, the next one has not
		again  bool   // for a day all may have run
	}{
		{"nothing", row, Claim{Stream: "s1/c1", End: 30}, 0, false},
		{"another stream", row, Claim{Stream: "s2/c1", End: 30}, 0, false},
		{"the database went back", row, Claim{Stream: "s1/c1", End: 30, Evidence: gone}, 30, false},
		{"it went back, and the stream is another", row, Claim{Stream: "s2/c1", End: 3, Evidence: gone}, 0, true},
		{"it went back, and the stream ends before", row, Claim{Stream: "s1/c1", End: 3, Former: gone, RewoundTasks: true}, 0, true},
		{"it went back behind an owner that found the stream cut", row, Claim{Stream: "s1/c1", End: 30, Evidence: cut}, 0, true},
		{"the same by the word of a former owner", row, Claim{Stream: "s1/c1", End: 30, Former: cut}, 0, true},
		{"it went back to after that", row, Claim{Stream: "s1/c1", End: 30, Evidence: before}, 30, false},
		{"the stream was cut, and the database is as it was", unread, Claim{Stream: "s1/c1", End: 30, Evidence: Evidence{Epoch: 5, Commit: 20, Rewound: 5}}, 30, false},
		{"it went back, and the node looks again", row, Claim{Stream: "s1/c1", End: 3, Evidence: gone, Provisional: true}, 0, true},
		{"it did not, and the node looks again", row, Claim{Stream: "s1/c1", End: 30, Provisional: true}, 0, false},
		{"another stream while it is read again", unread, Claim{Stream: "s2/c1", End: 3}, 0, true},
		{"a shorter stream while it is read again", unread, Claim{Stream: "s1/c1", End: 12, RewoundTasks: true}, 0, true},
		{"another control stream while it is read again", unread, Claim{Stream: "s1/c2", End: 40}, 30, false},
		{"another stream when all is read", read, Claim{Stream: "s2/c1", End: 3}, 0, false},
	} {
		s := c.row
		c.claim.At = at
		s.Take(c.claim)
		mayRun := func(origin uint64, created Instant) bool {
			return s.MayHaveRun(&Task{Number: s.NextNumber, Origin: origin, CreatedAt: created})
		}
		if c.again {
			if !mayRun(1<<40, at.Add(resubmitFor-time.Hour)) || mayRun(1<<40, at.Add(resubmitFor)) {
				t.Errorf("%s: what is submitted again: %+v", c.name, s)
			}
			s.Take(Claim{Stream: "s3/c1", At: at.Add(time.Minute)})
			if s.WentBackUntil != ReadNoMore {
				t.Errorf("%s: forgotten with the next stream: %+v", c.name, s)
			}
			continue
		}
		if c.origin > 0 && !mayRun(c.origin, at) || mayRun(c.origin+1, at) {
			t.Errorf("%s: submissions up to %d: %+v", c.name, c.origin, s)
		}
	}
	noted := Task{Number: 1, WentBackAt: at}
	took := PartitionState{WentBackAt: at, WentBackNumber: 5}
	if took.MayHaveRun(&noted) {
		t.Error("what is noted in its journal is noted once more")
	}
}

// A node that has found that the database went back looks once more, and then only what it sees counts. One that dies in
// between has left that anything may have run, and so has one after which another came.
func TestTakeAgain(t *testing.T) {
	gone := Evidence{Epoch: 4, Commit: 9}
	s := PartitionState{Epoch: 4, LastCommit: 7, Cursor: 10, NextNumber: 5, Stream: "s1/c1", WentBackUntil: 2}
	s.Take(Claim{Commit: 20, Stream: "s1/c1", End: 12, Evidence: gone, Provisional: true})
	if s.WentBackUntil != ReadNoMore || s.Found.Until != 12 {
		t.Fatalf("provisional: %+v", s)
	}
	first := First{Epoch: s.Epoch, Commit: s.LastCommit, Until: s.Found.Until}
	died, again, other := s, s, s
	died.Take(Claim{Commit: 30, Stream: "s1/c1", End: 14})
	if died.WentBackUntil != ReadNoMore {
		t.Errorf("after its death: %+v", died)
	}
	again.Take(Claim{Commit: 30, Stream: "s1/c1", End: 14, WentBack: true, First: first})
	if again.WentBackUntil != 14 || again.Found.Until != 14 {
		t.Errorf("after its second look: %+v", again)
	}
	other.Take(Claim{Commit: 25, Stream: "s1/c1", End: 13})
	other.Take(Claim{Commit: 30, Stream: "s1/c1", End: 14, WentBack: true, First: first})
	if other.WentBackUntil != ReadNoMore {
		t.Errorf("another came in between: %+v", other)
	}
}

// TestTakeBegins: cursors of other streams begin where the claim says, so that what these
// streams had of the partition before is not read; those of the same streams stay.
func TestTakeBegins(t *testing.T) {
	row := PartitionState{Epoch: 4, LastCommit: 7, Cursor: 10, CursorStored: 5, ControlCursor: 20, ControlStored: 6, Stream: "s1/c1"}
	for stream, want := range map[string][2]uint64{"s1/c1": {10, 20}, "s2/c1": {100, 20}, "s1/c2": {10, 200}, "s2/c2": {100, 200}} {
		s := row
		s.Take(Claim{Stream: stream, Begin: 100, ControlBegin: 200})
		if s.Cursor != want[0] || s.ControlCursor != want[1] || s.Epoch != 5 || s.Stream != stream ||
			(s.CursorStored == 0) != (want[0] == 100) || (s.ControlStored == 0) != (want[1] == 200) {
			t.Errorf("%s: %+v, want %v", stream, s, want)
		}
	}
}
