package ingest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
)

// Whatever the ports do, every request is answered once; what is answered as
// stored is in the stream at that place, and what is answered as not stored is
// not; no pack and no room grows beyond its bound.
//
// covers: T4, Q4, inv1
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(t)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			s.step()
		}
		s.calm()
		s.check()
	})
}

// storm drives one door with what rapid draws.
type storm struct {
	t       *rapid.T
	rig     *rig
	now     core.Instant
	next    int
	open    []int               // messages without an outcome
	stored  map[int]uint64      // messages that are in the stream
	unclear map[int]bool        // messages whose outcome the stream kept to itself or did not know
	at      map[string]int      // message of an id
	read    int64               // of the stream, as a scheduler says
	known   map[string]struct{} // ids submitted
}

func newStorm(t *rapid.T) *storm {
	s := &storm{t: t, now: epoch, stored: map[int]uint64{}, unclear: map[int]bool{}, at: map[string]int{}, known: map[string]struct{}{}}
	s.rig = &rig{log: &memLog{}, plans: plans("order"), answers: map[string][]Answer{}}
	var err error
	s.rig.door, err = NewDoor(Config{
		StreamOf: streamName(rapid.IntRange(1, 3).Draw(t, "streams")), Partitions: 3, PartitionOf: byDigit, PackItems: rapid.IntRange(1, 9).Draw(t, "items"),
		PackBytes: 2000, ItemsMax: rapid.IntRange(5, 80).Draw(t, "room"), UnknownMax: 5,
		PublishMax: time.Second, QuietItems: 1, BusyItems: 10,
	}, s.rig.plans, s.rig.log)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *storm) step() {
	switch rapid.IntRange(0, 9).Draw(s.t, "what") {
	case 0, 1, 2, 3:
		for range rapid.IntRange(1, 12).Draw(s.t, "burst") {
			s.submit()
		}
	case 4:
		s.now = s.now.Add(time.Duration(rapid.IntRange(0, 2_000_000).Draw(s.t, "pass")) * time.Microsecond)
	case 5:
		s.read += rapid.Int64Range(0, 20).Draw(s.t, "read")
		s.rig.door.Report("n1", []core.Reading{{Partition: rapid.IntRange(0, 3).Draw(s.t, "of"), Epoch: 1, Cursor: uint64(s.read), Read: s.read, Begun: s.read}})
		if len(s.rig.plans.readings) > 0 {
			s.rig.plans.read(rapid.SampledFrom([]error{nil, errors.New("away")}).Draw(s.t, "reading"))
		}
	case 6, 7:
		s.outcome()
	default:
		s.rig.door.Flush(s.now)
	}
	s.note()
}

func (s *storm) submit() {
	id := fmt.Sprintf("t%d-%d", s.next, rapid.IntRange(0, 2).Draw(s.t, "partition"))
	s.next++
	s.known[id] = struct{}{}
	req := s.rig.request(id)
	switch rapid.IntRange(0, 9).Draw(s.t, "kind") {
	case 0:
		req.Type = "stranger"
	case 1:
		req.Input = []byte(`{`)
	case 2:
		req.Input = jsonOf(990)
	}
	s.rig.door.Submit(s.now, req)
}

// note keeps the books of new messages.
func (s *storm) note() {
	for n := len(s.stored) + len(s.unclear) + len(s.open); n < len(s.rig.log.got); n++ {
		m := &s.rig.log.got[n]
		s.open = append(s.open, n)
		if len(m.subs) == 0 || len(m.subs) > s.rig.door.cfg.PackItems {
			s.t.Fatalf("a pack of %d items", len(m.subs))
		}
		for _, id := range m.ids {
			if _, twice := s.at[id]; twice || byDigit(id, 3) != m.partition {
				s.t.Fatalf("id %s in message %d for partition %d, twice: %v", id, n, m.partition, twice)
			}
			s.at[id] = n
		}
	}
	if st := s.rig.door.Stats(s.now); st.Items > int64(s.rig.door.cfg.ItemsMax) || st.Items < 0 || st.Bytes < 0 {
		s.t.Fatalf("%d items and %d bytes of room in use", st.Items, st.Bytes)
	}
	for _, of := range s.rig.door.streams {
		if items := of.budget.items.Load(); items > of.budget.itemsMax || items < 0 || of.flying < 0 || of.open < 0 {
			s.t.Fatalf("stream %s: %d items of room in use, %d packs on their way, %d open", of.name, items, of.flying, of.open)
		}
	}
}

// outcome ends one message in some way, in any order.
func (s *storm) outcome() {
	if len(s.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.open)-1).Draw(s.t, "which")
	n := s.open[i]
	s.open = append(s.open[:i], s.open[i+1:]...)
	switch rapid.IntRange(0, 5).Draw(s.t, "outcome") {
	case 0:
		s.unclear[n] = true // nothing is ever heard of it
	case 1:
		s.unclear[n] = true
		s.rig.log.got[n].done(0, errors.New("timeout"))
	case 2:
		s.unclear[n] = true
		s.rig.log.got[n].done(0, rapid.SampledFrom([]error{ErrLogDown, ErrLogFull}).Draw(s.t, "why"))
	default:
		s.rig.log.store(n)
		s.stored[n] = s.rig.log.seq
		if rapid.Bool().Draw(s.t, "twice") {
			s.rig.log.got[n].done(0, errors.New("again"))
		}
	}
}

// calm closes the door and lets time pass until it is idle.
func (s *storm) calm() {
	s.rig.door.Close(s.now)
	s.note()
	for range 20 {
		if due := s.rig.door.Due(s.now); due > s.now {
			s.now = due
		}
		s.rig.door.Flush(s.now)
	}
	if due := s.rig.door.Due(s.now); due != 0 {
		s.t.Fatalf("due at %v after everything was answered", due)
	}
}

func (s *storm) check() {
	st := s.rig.door.Stats(s.now)
	if !s.rig.door.Idle() || st.Items != 0 || st.Bytes != 0 {
		s.t.Fatalf("%d items and %d bytes unanswered", st.Items, st.Bytes)
	}
	for _, of := range s.rig.door.streams {
		if of.flying != 0 || of.open != 0 {
			s.t.Fatalf("stream %s: %d packs on their way, %d open, after everything was answered", of.name, of.flying, of.open)
		}
	}
	var accepted, refused int64
	for id := range s.known {
		answers := s.rig.answers[id]
		if len(answers) != 1 {
			s.t.Fatalf("%s has %d answers", id, len(answers))
		}
		a := answers[0]
		n, published := s.at[id]
		switch {
		case a.Err == nil:
			accepted++
			if want := s.rig.door.cfg.StreamOf(a.Partition); a.Stream != want {
				s.t.Fatalf("%s of partition %d was accepted in stream %s, want %s", id, a.Partition, a.Stream, want)
			}
			if !published || s.stored[n] != a.Seq {
				s.t.Fatalf("%s was accepted at %d, but message %d is stored at %d", id, a.Seq, n, s.stored[n])
			}
		default:
			refused++
			if published && s.stored[n] != 0 && a.Err.ErrCode != causeOutcome {
				s.t.Fatalf("%s is stored but was refused: %v", id, a.Err)
			}
		}
	}
	for _, n := range st.Refused {
		refused -= n
	}
	if accepted != st.Accepted || refused != 0 || st.Taken != int64(len(s.known)) {
		s.t.Fatalf("counts %+v do not add up: %d accepted, %d refusals too many, %d submitted", st, accepted, refused, len(s.known))
	}
}
