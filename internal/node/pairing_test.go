package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/schema"
)

// fakeSQL and fakeNATS are the two sides in memory; away fails all their calls.
type fakeSQL struct {
	mu     sync.Mutex
	row    schema.Pairing
	writes int
	away   bool
}

var errAway = errors.New("away")

func (s *fakeSQL) Pairing(context.Context) (schema.Pairing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return schema.Pairing{}, errAway
	}
	return s.row, nil
}

func (s *fakeSQL) Pair(_ context.Context, p schema.Pairing, last string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return false, errAway
	}
	if s.row.Beat != last {
		return false, nil
	}
	s.row = p
	s.writes++
	return true, nil
}

type fakeNATS struct {
	mu   sync.Mutex
	id   string // empty: no bucket
	last natsbus.Beat
	away bool
}

func (n *fakeNATS) Beat(context.Context) (string, natsbus.Beat, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away {
		return "", natsbus.Beat{}, errAway
	}
	return n.id, n.last, nil
}

func (n *fakeNATS) PutBeat(_ context.Context, b natsbus.Beat) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away || n.id == "" {
		return errAway
	}
	n.last = b
	return nil
}

// lateNATS stores a beat when the next one comes.
type lateNATS struct {
	*fakeNATS
	held natsbus.Beat
}

func (n *lateNATS) PutBeat(ctx context.Context, b natsbus.Beat) error {
	late := n.held
	n.held = b
	if late.Beat == "" {
		return nil
	}
	return n.fakeNATS.PutBeat(ctx, late)
}

// slowNATS is NATS to a node for which much happens before it asks the database.
type slowNATS struct {
	*fakeNATS
	meanwhile func()
}

func (n *slowNATS) Beat(ctx context.Context) (string, natsbus.Beat, error) {
	id, last, err := n.fakeNATS.Beat(ctx)
	n.meanwhile()
	return id, last, err
}

func pairOf(name string, sql *fakeSQL, nats *fakeNATS) *pairing {
	return &pairing{store: sql, nats: nats, node: name, writes: true, every: time.Second}
}

// pass lets time go by with all of them running, and returns the first error of each.
func pass(t *testing.T, d time.Duration, all ...*pairing) []error {
	t.Helper()
	errs := make([]error, len(all))
	for ; d > 0; d -= time.Second {
		for i, p := range all {
			if errs[i] == nil {
				errs[i] = p.beat(t.Context())
			}
			<-time.After(time.Second / time.Duration(len(all)))
		}
	}
	return errs
}

// begins awaits a pairing while others run, and says how long it took.
func begins(t *testing.T, p *pairing, all ...*pairing) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- p.await(t.Context(), func(string) {}) }()
	for {
		synctest.Wait()
		select {
		case err := <-ended:
			return time.Since(began).Truncate(time.Second), err
		default:
		}
		for i, err := range pass(t, time.Second, all...) {
			if err != nil {
				t.Fatal(i, err)
			}
		}
		if len(all) == 0 {
			<-time.After(time.Second)
		}
	}
}

// long is long enough for everything to be found.
const long = 5 * pairStill

func TestPairing(t *testing.T) {
	well := func(t *testing.T, d time.Duration, all ...*pairing) {
		t.Helper()
		for i, err := range pass(t, d, all...) {
			if err != nil {
				t.Errorf("node %d ends: %v", i+1, err)
			}
		}
	}
	at := func(t *testing.T, p *pairing, least, most time.Duration, all ...*pairing) {
		t.Helper()
		took, err := begins(t, p, all...)
		if err != nil || took < least || took > most {
			t.Errorf("begins after %v: %v; want %v to %v", took, err, least, most)
		}
	}
	refused := func(t *testing.T, why error, p *pairing, all ...*pairing) {
		t.Helper()
		if took, err := begins(t, p, all...); !errors.Is(err, why) || took >= pairStill {
			t.Errorf("after %v: %v, want %v", took, err, why)
		}
	}
	for _, c := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"two nodes, one after the other and both at once", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{}
			one, two := pairOf("one", sql, nats), pairOf("two", sql, nats)
			at(t, one, 0, 0)
			nats.id = "A"
			well(t, long, one)
			at(t, two, 0, 0, one)
			well(t, long, one, two)
			if sql.row.NATS != "A" || !strings.HasPrefix(sql.row.Beat, nats.last.Beat+" ") || len(strings.Fields(sql.row.Beat)) != pairKept {
				t.Errorf("%+v, %+v", sql.row, nats.last)
			}
			at(t, pairOf("three", sql, nats), 0, 0)
		}},
		{"a node that is slow", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one, slow := pairOf("one", sql, nats), pairOf("slow", sql, nats)
			well(t, long, one)
			slow.writes = false
			slow.nats = &slowNATS{nats, func() { well(t, 4*time.Second, one) }}
			well(t, long, one, slow)
		}},
		{"one database, two NATS", func(t *testing.T) {
			sql, a, b := &fakeSQL{}, &fakeNATS{id: "A"}, &fakeNATS{}
			one := pairOf("one", sql, a)
			well(t, long, one)
			refused(t, errOtherNATS, pairOf("two", sql, b), one)
			b.id = "B"
			refused(t, errOtherNATS, pairOf("two", sql, b), one)
			well(t, long, one)
		}},
		{"a running node whose connection goes to another NATS", func(t *testing.T) {
			sql, a, b := &fakeSQL{}, &fakeNATS{id: "A"}, &fakeNATS{id: "B"}
			one, two := pairOf("one", sql, a), pairOf("two", sql, a)
			well(t, long, one, two)
			two.nats = b
			errs := pass(t, long, one, two)
			if errs[0] != nil || !errors.Is(errs[1], errOtherNATS) {
				t.Error(errs)
			}
		}},
		{"one NATS, two databases of one installation", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one := pairOf("one", sql, nats)
			well(t, long, one)
			copied := fakeSQL{row: sql.row}
			well(t, long, one)
			refused(t, errOtherDatabase, pairOf("two", &copied, nats), one)
			well(t, long, one)
		}},
		{"running nodes whose database splits in two", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one, two := pairOf("one", sql, nats), pairOf("two", sql, nats)
			well(t, long, one, two)
			copied := fakeSQL{row: sql.row}
			two.store = &copied
			if errs := pass(t, long, one, two); !errors.Is(errs[0], errOtherDatabase) && !errors.Is(errs[1], errOtherDatabase) {
				t.Error(errs)
			}
		}},
		{"NATS is lost while nodes run", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one, two := pairOf("one", sql, nats), pairOf("two", sql, nats)
			well(t, long, one, two)
			nats.id, nats.last, nats.away = "", natsbus.Beat{}, true
			well(t, long, one, two)
			nats.id, nats.last, nats.away = "", natsbus.Beat{}, false
			well(t, 2*time.Second, one, two)
			nats.id = "B"
			well(t, long, one, two)
			if sql.row.NATS != "B" {
				t.Errorf("%+v", sql.row)
			}
			at(t, pairOf("three", sql, nats), 0, 0)
		}},
		{"NATS is lost, and everything is started again", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			well(t, long, pairOf("one", sql, nats))
			nats.id, nats.last, nats.away = "", natsbus.Beat{}, false
			one := pairOf("one", sql, nats)
			at(t, one, pairStill, pairStill+time.Second)
			nats.id = "B"
			well(t, time.Second, one)
			if sql.row.NATS != "B" {
				t.Errorf("%+v", sql.row)
			}
		}},
		{"the database goes back while nodes run", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one, two := pairOf("one", sql, nats), pairOf("two", sql, nats)
			well(t, long, one, two)
			for range 5 {
				before := sql.row
				well(t, long, one, two)
				sql.row = before
				well(t, 2*time.Second, one, two)
			}
		}},
		{"the database is restored, and everything is started again", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			well(t, long, pairOf("one", sql, nats))
			before := sql.row
			well(t, long, pairOf("one", sql, nats))
			sql.row = before
			one := pairOf("one", sql, nats)
			at(t, one, pairStill, pairStill+time.Second) // the bucket of leases forgets sooner
			well(t, long, one)
		}},
		{"beats reach NATS late", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one, two := pairOf("one", sql, nats), pairOf("two", sql, nats)
			one.nats = &lateNATS{fakeNATS: nats}
			well(t, long, one, two)
		}},
		{"many nodes beat no more often than one", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			var all []*pairing
			for range 5 {
				all = append(all, pairOf("one of many", sql, nats))
			}
			well(t, long, all...)
			if most := int(long/time.Second) + len(all); sql.writes > most {
				t.Errorf("%d beats in %v, want %d at most", sql.writes, long, most)
			}
		}},
		{"the database is away", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one, two := pairOf("one", sql, nats), pairOf("two", sql, nats)
			well(t, long, one, two)
			sql.away = true
			well(t, long, one, two)
			sql.away = false
			well(t, long, one, two)
			sql.away = true
			if _, err := begins(t, pairOf("three", sql, nats), one); !errors.Is(err, errAway) {
				t.Error(err)
			}
		}},
		{"NATS does not answer a node that begins", func(t *testing.T) {
			sql, nats := &fakeSQL{}, &fakeNATS{id: "A"}
			one := pairOf("one", sql, nats)
			well(t, long, one)
			at(t, pairOf("two", sql, &fakeNATS{away: true}), pairStill, pairStill+time.Second, one)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { synctest.Test(t, c.run) })
	}
}
