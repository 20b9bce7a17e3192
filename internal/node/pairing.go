package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/schema"
)

// A database and a NATS belong together. Two nodes that share only one of the two know
// nothing of each other: each takes all partitions from the other, for ever, or runs the
// other's submissions in a database of its own. The installation's id does not tell,
// because a copy of a database has the same. So a live node writes a new word, the beat,
// into the database and then into NATS every few seconds: who finds that one of the two
// goes on without the other shares only that one.

var (
	errOtherNATS     = errors.New("the database is in use through another NATS")
	errOtherDatabase = errors.New("this NATS is in use with another database")
)

const (
	// pairEvery is between two beats of an installation, at most a third of a lease.
	pairEvery = 3 * time.Second
	// pairStill is how long a beat may stand still before there is no one behind it.
	pairStill = 12 * time.Second
	// Beats that were found on one side alone, and in what time, before it is certain: one
	// may be on its way, or have been lost with a part of the database.
	pairAlone  = 3
	pairWithin = 10 * pairEvery
	// pairKept is how many of the database's last beats are known.
	pairKept = 16
)

// pairStore is a schema.Store whose database several processes may use.
type pairStore interface {
	Pairing(ctx context.Context) (schema.Pairing, error)
	Pair(ctx context.Context, p schema.Pairing, last string) (bool, error)
}

// pairBus is a natsbus.Conn.
type pairBus interface {
	Beat(ctx context.Context) (id string, last natsbus.Beat, err error)
	PutBeat(ctx context.Context, b natsbus.Beat) error
}

// pairing is what one node knows of its database and its NATS.
type pairing struct {
	store  pairStore
	nats   pairBus
	node   string        // for people to read
	writes bool          // this node writes beats
	every  time.Duration // between two looks

	last string   // the database's beat at the last look
	seen []string // its last beats

	moved   int       // beats of the database while it was another NATS's
	since   time.Time // when its beat last changed meanwhile; zero: it is this NATS's
	alone   []time.Time
	aloneAt string // the last beat that only NATS had
}

// found is one look at both sides.
type found struct {
	told   bool   // NATS has answered
	denied bool   // it never will: the user lacks the right to ask
	id     string // of this NATS; empty: it has no bucket of live nodes
	nats   natsbus.Beat
	sql    schema.Pairing
}

// look looks at both sides. NATS comes first: a beat is in the database before it is there.
func (p *pairing) look(ctx context.Context) (f found, err error) {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	id, last, err := p.nats.Beat(bounded)
	f.denied = errors.Is(err, nats.ErrPermissionViolation)
	if err == nil {
		f.told, f.id, f.nats = true, id, last
	} else if ctx.Err() != nil {
		return f, err
	}
	if f.sql, err = p.store.Pairing(ctx); err != nil {
		return f, err
	}
	words := strings.Fields(f.sql.Beat)
	for i := len(words) - 1; i >= 0; i-- { // the oldest first
		p.note(words[i])
	}
	return f, nil
}

// after is the database's beats with a new one before them: who looks seldom, on a machine
// that is busy, would miss some that NATS still has.
func after(beats, next string) string {
	words := append([]string{next}, strings.Fields(beats)...)
	return strings.Join(words[:min(len(words), pairKept)], " ")
}

func (p *pairing) note(beat string) {
	if beat == "" || slices.Contains(p.seen, beat) {
		return
	}
	p.seen = append(p.seen[max(0, len(p.seen)-2*pairKept+1):], beat)
}

// other judges whether the database is another NATS's: with an error when nodes live
// there, and false when there have been none for so long that it can be taken.
func (p *pairing) other(f *found) (bool, error) {
	if !f.told {
		return true, nil // not known
	}
	if f.sql.NATS == "" || f.sql.NATS == f.id {
		p.moved, p.since = 0, time.Time{}
		return false, nil
	}
	switch {
	case p.since.IsZero():
		p.moved, p.since = 0, time.Now()
	case f.sql.Beat != p.last:
		p.moved, p.since = p.moved+1, time.Now()
	}
	if p.moved >= pairAlone-1 {
		return true, fmt.Errorf("%w, by node %s: nodes of one installation share database and NATS; is the NATS URL right?", errOtherNATS, f.sql.UsedBy)
	}
	return time.Since(p.since) < pairStill, nil
}

// foreign judges whether NATS has beats that this database never had: with an error when
// that is certain.
func (p *pairing) foreign(f *found) (bool, error) {
	if f.nats.Beat == "" || slices.Contains(p.seen, f.nats.Beat) {
		return false, nil
	}
	p.alone = slices.DeleteFunc(p.alone, func(at time.Time) bool { return time.Since(at) > pairWithin })
	if f.nats.Beat != p.aloneAt {
		p.alone, p.aloneAt = append(p.alone, time.Now()), f.nats.Beat
	}
	if len(p.alone) >= pairAlone {
		return true, fmt.Errorf("%w, a copy of this one, by node %s: nodes of one installation share database and NATS; is the database URL right, "+
			"and does everybody reach the same server behind it?", errOtherDatabase, f.nats.By)
	}
	return true, nil
}

// await returns when no other nodes use this node's database or NATS without the other; tell
// hears what is waited for. Errors: errOtherNATS, errOtherDatabase, the database's.
func (p *pairing) await(ctx context.Context, tell func(why string)) error {
	began := time.Now()
	for told := false; ; told = true {
		f, err := p.look(ctx)
		if err != nil {
			return err
		}
		another, err := p.other(&f)
		copied, err2 := p.foreign(&f)
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		p.last = f.sql.Beat
		if !another && !copied || time.Since(began) >= pairStill || f.denied { // which is told by who sets up
			return nil
		}
		if !told {
			switch {
			case !f.told:
				tell(say.Of("wait.nats"))
			case another:
				tell(say.Of("wait.other-nats", "node", f.sql.UsedBy))
			default:
				tell(say.Of("wait.other-database", "node", f.nats.By))
			}
		}
		if pause.For(ctx, p.every/4) != nil {
			return ctx.Err()
		}
	}
}

// beat is one look of a node that runs, and a beat where the last one is not new. What
// cannot be asked is the trouble of another condition. Errors: errOtherNATS, errOtherDatabase.
func (p *pairing) beat(ctx context.Context) error {
	f, err := p.look(ctx)
	if err != nil || f.id == "" { // or the bucket is made again soon
		return nil //nolint:nilerr // of the database or of NATS, which have conditions
	}
	another, err := p.other(&f)
	_, err2 := p.foreign(&f)
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	stale := f.sql.Beat == p.last
	p.last = f.sql.Beat
	if !p.writes || another || !stale {
		return nil
	}
	word := rand.Text()
	next := schema.Pairing{NATS: f.id, UsedBy: p.node, Beat: after(f.sql.Beat, word)}
	if ok, err := p.store.Pair(ctx, next, f.sql.Beat); err != nil || !ok {
		return nil //nolint:nilerr // the database has a condition, and who else wrote is seen at the next look
	}
	p.last = next.Beat
	p.note(word)
	_ = p.nats.PutBeat(ctx, natsbus.Beat{Beat: word, By: p.node}) // NATS has a condition
	return nil
}

// unused refuses the database of an installation while there are beats of nodes in it.
func unused(ctx context.Context, store schema.Store, installation string) error {
	paired, ok := store.(pairStore)
	if !ok {
		return nil
	}
	is, err := store.Chain(ctx) // it knows the id, whatever the namespace
	if err != nil || is.Installation() != installation {
		return err // of another one Renew says so
	}
	before, err := paired.Pairing(ctx)
	for end := time.Now().Add(pairStill); err == nil && before.Beat != "" && time.Now().Before(end); {
		if err = pause.For(ctx, pairEvery); err != nil {
			break
		}
		var now schema.Pairing
		if now, err = paired.Pairing(ctx); err == nil && now.Beat != before.Beat {
			err = fmt.Errorf("the database is in use, by node %s: is the database URL that of the copy?", now.UsedBy)
		}
	}
	return err
}

// newPairing is this node's; nil: its database is its own.
func (n *Node) newPairing() *pairing {
	store, ok := n.store.(pairStore)
	if !ok {
		return nil
	}
	return &pairing{
		store: store, nats: n.conn, node: n.cfg.NodeName + " (" + n.conn.Server() + ")",
		writes: n.cfg.Has(config.RoleScheduler), every: min(pairEvery, n.cfg.Lease/3),
	}
}

// awaitPaired returns when this node's database and NATS belong together.
func (n *Node) awaitPaired(ctx context.Context) error {
	if n.pair = n.newPairing(); n.pair == nil {
		return nil
	}
	return n.pair.await(ctx, func(why string) {
		n.log.Warn("waiting, to see whether that is still so", "found", why, "at_most", pairStill)
	})
}

// keepPaired beats until ctx ends, or until database and NATS are found not to belong
// together: then nothing that this node does is right, and it must end.
func (n *Node) keepPaired(ctx context.Context) {
	if n.pair == nil {
		return
	}
	for again := true; again; again = pause.For(ctx, n.pair.every) == nil {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		err := n.pair.beat(bounded)
		cancel()
		if err != nil {
			n.unpaired <- err
			return
		}
	}
}

// awaitUnpaired ends with the error of keepPaired.
func (n *Node) awaitUnpaired(ctx context.Context) error {
	select {
	case err := <-n.unpaired:
		return err
	case <-ctx.Done():
		return nil
	}
}
