package group

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/pgtestdb"
)

// TestMoveIsFenced: the cursor moves under the owner's epoch alone, and from where it is alone; so a second commit of one
// batch fails, from any member.
func TestMoveIsFenced(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), pgtestdb.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := Setup(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := opened(pool, "g", HoldDefault)
	if err := s.found(t.Context(), "S", "made", "rule", 2, 5, 0, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	rows, err := s.rows(t.Context())
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v %v", rows, err)
	}
	taken, err := s.adopt(t.Context(), rows, "a")
	if err != nil || len(taken) != 2 || taken[0].epoch != 1 {
		t.Fatalf("%+v %v", taken, err)
	}
	if again, err := s.adopt(t.Context(), rows, "b"); err != nil || len(again) > 0 {
		t.Errorf("taken from what was seen before another took it: %+v %v", again, err)
	}
	move := func(epoch int64, from, to uint64) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return s.move(t.Context(), tx, 0, epoch, from, outcome{to: position{seq: to}})
		})
	}
	for _, test := range []struct {
		epoch    int64
		from, to uint64
		want     error
	}{{0, 5, 9, errLost}, {2, 5, 9, errLost}, {1, 4, 9, errLost}, {1, 5, 9, nil}, {1, 5, 9, errLost}, {1, 9, 12, nil}} {
		if err := move(test.epoch, test.from, test.to); !errors.Is(err, test.want) {
			t.Errorf("under epoch %d from %d to %d: %v, want %v", test.epoch, test.from, test.to, err, test.want)
		}
	}
}

// TestHole: a message that is not the consumer's next ends the reading, and is not handed on.
func TestHole(t *testing.T) {
	l := &lane{queue: newQueue(position{}, 10, 1000), ended: make(chan struct{})}
	m := &member{cfg: config{by: HashOfSubject(1)}}
	r := &reading{feed: &feed{m: m, again: make(chan struct{}, 1)}, lanes: map[int]*lane{0: l}, floor: 1}
	message := func(stream, consumer string) error {
		return r.message(t.Context(), &nats.Msg{Subject: "a", Sub: &nats.Subscription{}, Reply: "$JS.ACK.S.C.1." + stream + "." + consumer + ".1700000000000000000.0"})
	}
	if err := message("4", "1"); err != nil || l.queue.position().seq != 4 {
		t.Errorf("%v, up to %d", err, l.queue.position().seq)
	}
	if err := message("6", "3"); !errors.Is(err, errHole) || l.queue.position().seq != 4 {
		t.Errorf("%v, up to %d, want errHole and 4", err, l.queue.position().seq)
	}
}

// TestEndIsTheStores: a cursor moves to the end of the stream only where the store has nothing of the filters that was not
// read; and what stays away from one look to the next is asked for again.
func TestEndIsTheStores(t *testing.T) {
	server := natstest.Start(t, natsserver.Options{SyncOff: true})
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"a.*", "b.*"}})
	}
	for _, subject := range []string{"a.0", "b.0", "a.1", "b.0"} {
		if err == nil {
			_, err = js.Publish(t.Context(), subject, []byte("x"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &lane{queue: newQueue(position{}, 10, 1000), ended: make(chan struct{})}
	m := &member{nc: nc, stream: "S", cfg: config{by: Token(1, 2)}}
	r := &reading{feed: &feed{m: m, filters: []string{"b.1", "a.1"}, again: make(chan struct{}, 1)}, lanes: map[int]*lane{0: l}, floor: 1, end: position{seq: 4}, read: 2}
	for i, want := range []error{nil, errHole} {
		if err := r.settled(t.Context()); !errors.Is(err, want) || l.queue.position().seq != 0 {
			t.Errorf("look %d: %v, up to %d, want %v and 0", i, err, l.queue.position().seq, want)
		}
	}
	r.read = 3
	if err := r.settled(t.Context()); err != nil || l.queue.position().seq != 4 {
		t.Errorf("%v, up to %d, want the end", err, l.queue.position().seq)
	}
}
