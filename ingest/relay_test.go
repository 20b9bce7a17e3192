package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// heap is an outbox in memory. Like a table it locks what one relay has, and a transaction that fails changes nothing.
type heap struct {
	mu      sync.Mutex
	rows    map[int64]*heapRow
	away    bool // the database
	lost    int  // so many transactions more end after the rows were handed in, and before anything is written down
	handed  int
	largest int
	empty   []time.Time // when it was found empty
	taking  int         // transactions that are open
	most    int         // of these at once
	cuts    int         // how often the connections of all relays were cut
	removed func(id string)
	judged  func(row *heapRow, v *Verdict, written bool) // nil: no one is told
}

type heapRow struct {
	number  int64
	kind    rowKind
	form    submit.Form
	written time.Time
	taken   bool
	due     time.Time
	tries   int
	reason  *Refusal // kept for good
	unfit   *Refusal
}

func newHeap(ids ...string) *heap {
	h := &heap{rows: map[int64]*heapRow{}}
	for _, id := range ids {
		h.add("order", id)
	}
	return h
}

func (h *heap) add(typ, id string) *heapRow {
	return h.write(submit.Form{Type: typ, ID: id, Input: []byte(`{}`)}, rowFine, nil)
}

func (h *heap) write(form submit.Form, kind rowKind, unfit *Refusal) *heapRow {
	h.mu.Lock()
	defer h.mu.Unlock()
	row := &heapRow{number: int64(len(h.rows) + 1), kind: kind, form: form, written: time.Now(), due: time.Now(), unfit: unfit}
	h.rows[row.number] = row
	return row
}

// some is one of the rows that are there; nil: there is none.
func (h *heap) some(which int) *heapRow {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*heapRow
	for number := int64(1); number <= int64(len(h.rows)); number++ {
		if row := h.rows[number]; row != nil {
			all = append(all, row)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[which%len(all)]
}

// cut ends the connections of all relays: their transactions are rolled back, and the rows are free.
func (h *heap) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cuts++
	for _, row := range h.rows {
		if row != nil {
			row.taken = false
		}
	}
}

// dueRows are the first of those that a relay can take, as the table orders them.
func (h *heap) dueRows(most int) (due []*heapRow) {
	now := time.Now()
	for _, row := range h.rows {
		if row != nil && !row.taken && row.reason == nil && !row.due.After(now) {
			due = append(due, row)
		}
	}
	slices.SortFunc(due, func(a, b *heapRow) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.number, b.number)) })
	return due[:min(most, len(due))]
}

var errAway = errors.New("the database is away")

func (h *heap) Take(ctx context.Context, most int, hand func(context.Context, []Written) []Verdict) (int, error) {
	h.mu.Lock()
	if h.away {
		h.mu.Unlock()
		return 0, errAway
	}
	var rows []Written
	due := h.dueRows(most)
	for _, row := range due {
		row.taken = true
		form := row.form
		form.Ago = time.Since(row.written)
		rows = append(rows, Written{Row: row.number, Tries: row.tries, Unfit: row.unfit, Request: Request{Form: form}})
	}
	h.handed, h.largest = h.handed+len(rows), max(h.largest, len(rows))
	if len(rows) == 0 {
		h.empty = append(h.empty, time.Now())
		h.mu.Unlock()
		return 0, nil
	}
	h.taking++
	h.most = max(h.most, h.taking)
	cuts := h.cuts
	h.mu.Unlock()
	verdicts := hand(ctx, rows)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taking--
	lost := h.lost > 0 || cuts != h.cuts
	if cuts == h.cuts {
		h.lost = max(0, h.lost-1)
		for _, row := range due {
			row.taken = false
		}
	}
	for i := range verdicts {
		h.judge(&verdicts[i], due, lost)
	}
	if lost {
		return 0, errAway
	}
	return len(rows), nil
}

// judge does with a row what was said of it, unless the transaction is lost.
func (h *heap) judge(v *Verdict, due []*heapRow, lost bool) {
	row := due[slices.IndexFunc(due, func(r *heapRow) bool { return r.number == v.Row })]
	if h.judged != nil {
		h.judged(row, v, !lost)
	}
	switch {
	case lost:
	case v.Refused == nil:
		h.rows[v.Row] = nil
		if h.removed != nil {
			h.removed(row.form.ID)
		}
	case v.Again > 0:
		row.tries, row.due = row.tries+1, time.Now().Add(v.Again)
	default:
		row.reason = v.Refused
	}
}

// looks is how many rows it has handed out, and how often it was found empty.
func (h *heap) looks() (handed, empty int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handed, len(h.empty)
}

// left are the ids that are there, and those that are kept as refused.
func (h *heap) left() (waiting, refused []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, row := range h.rows {
		if row == nil {
			continue
		}
		if row.reason != nil {
			refused = append(refused, row.form.ID)
		} else {
			waiting = append(waiting, row.form.ID)
		}
	}
	slices.Sort(waiting)
	slices.Sort(refused)
	return waiting, refused
}

// relaying runs relays of an outbox into a door, and returns what ends them.
func relaying(t *testing.T, in *Ingest, cfg RelayConfig, h *heap, relays int) (all []*Relay, stop func()) {
	t.Helper()
	return relayingInto(t, func() *Relay { return NewRelay(cfg, h, in) }, relays)
}

func relayingInto(t *testing.T, relay func() *Relay, relays int) (all []*Relay, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range relays {
		r := relay()
		all = append(all, r)
		wg.Go(func() { r.Run(ctx) })
	}
	return all, func() {
		cancel()
		wg.Wait()
	}
}

func manyIDs(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("t%03d", i)
	}
	return all
}

// TestRelay: what is in an outbox goes through the door in bounded batches, by several relays, each row once when nothing
// fails.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{after: 2 * time.Millisecond}
		in, stopIn := running(t, log, nil)
		h := newHeap(manyIDs(500)...)
		relays, stop := relaying(t, in, RelayConfig{}, h, 3)
		<-time.After(5 * time.Second)
		stop()
		stopIn()
		if waiting, refused := h.left(); len(waiting)+len(refused) != 0 {
			t.Errorf("%d wait, %d are refused", len(waiting), len(refused))
		}
		if log.items != 500 || h.handed != 500 {
			t.Errorf("%d stored, %d handed in, want 500", log.items, h.handed)
		}
		if h.largest > defaultRelayItems {
			t.Errorf("%d rows at a time", h.largest)
		}
		var relayed int64
		for _, r := range relays {
			relayed += r.Stats().Relayed
		}
		if relayed != 500 {
			t.Errorf("%d counted", relayed)
		}
	})
}

// TestRelayLooksWhenItSays: an empty outbox is looked into once an interval, and what is written there then is handed in
// within one.
func TestRelayLooksWhenItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stopIn := running(t, &slowLog{}, nil)
		h := newHeap()
		_, stop := relaying(t, in, RelayConfig{Interval: 100 * time.Millisecond}, h, 1)
		<-time.After(950 * time.Millisecond)
		synctest.Wait()
		if _, empty := h.looks(); empty != 10 {
			t.Errorf("%d looks in 950ms, want 10", empty)
		}
		h.add("order", "late1")
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
		if waiting, _ := h.left(); len(waiting) != 0 {
			t.Errorf("%v wait after an interval", waiting)
		}
		stop()
		stopIn()
	})
}

// TestRelayIsAtLeastOnce: a relay that dies between the submission and the removal of its row leaves the row to the next
// one; nothing is lost, and the door gets the same id again.
func TestRelayIsAtLeastOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{after: time.Millisecond}
		in, stopIn := running(t, log, nil)
		h := newHeap(manyIDs(10)...)
		h.lost = 2
		var failed []error
		var mu sync.Mutex
		_, stop := relaying(t, in, RelayConfig{Report: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		}}, h, 1)
		<-time.After(5 * time.Second)
		stop()
		stopIn()
		if waiting, refused := h.left(); len(waiting)+len(refused) != 0 {
			t.Errorf("%v wait, %v are refused", waiting, refused)
		}
		if log.items != 30 {
			t.Errorf("%d submissions of 10 rows, whose removal was lost twice, want 30", log.items)
		}
		if len(failed) < 3 || failed[0] == nil || failed[1] == nil || failed[2] != nil {
			t.Errorf("reported %v, want two failures and then none", failed)
		}
	})
}

// TestRelayWithoutDatabase: while the database is away the relay asks less and less often, and goes on when it is back.
func TestRelayWithoutDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stopIn := running(t, &slowLog{}, nil)
		h := newHeap("a1")
		h.away = true
		asked := 0
		var mu sync.Mutex
		_, stop := relaying(t, in, RelayConfig{Report: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				asked++
			}
		}}, h, 1)
		<-time.After(time.Minute)
		mu.Lock()
		if asked < 5 || asked > 20 {
			t.Errorf("asked %d times in a minute", asked)
		}
		mu.Unlock()
		h.mu.Lock()
		h.away = false
		h.mu.Unlock()
		<-time.After(relayRestMax)
		synctest.Wait()
		if waiting, _ := h.left(); len(waiting) != 0 {
			t.Errorf("%v wait", waiting)
		}
		stop()
		stopIn()
	})
}

// TestRelayRestsAsTheDoorAsks: what the door cannot take for a reason of its own is handed in again when it said.
func TestRelayRestsAsTheDoorAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeap("a1", "a2")
		down := true
		var mu sync.Mutex // of down
		door := func(r Request) {
			mu.Lock()
			defer mu.Unlock()
			var a Answer
			if down {
				a.Err = Refuse(503, CauseStore, "the state store did not answer").After(2 * time.Second)
			}
			r.Answer(a)
		}
		_, stop := relayingInto(t, func() *Relay {
			return newRelay(RelayConfig{}, h, door, []string{"TASKS"}, func(string) int { return 0 })
		}, 1)
		<-time.After(time.Minute)
		synctest.Wait()
		if handed, _ := h.looks(); handed < 2 || handed > 2*31 {
			t.Errorf("%d rows are handed in within a minute, want at most %d", handed, 2*31)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		<-time.After(3 * time.Second)
		stop()
		if waiting, refused := h.left(); len(waiting)+len(refused) != 0 {
			t.Errorf("%v wait, %v are refused", waiting, refused)
		}
	})
}

// TestRelayRefusals: what is refused for good is kept; what waits for its plan, for its partition's owner or for a newer
// node is put off and holds up nothing; what the door has no room for stays as it is while the relay rests.
func TestRelayRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeap()
		kinds := map[string]*Refusal{
			"taken":   Refuse(409, CauseConflict, "id is a task already"),
			"type":    Refuse(404, CauseTypeUnknown, "no plan"),
			"version": Refuse(404, CauseVersionUnknown, "no such version"),
			"behind":  Refuse(429, CauseBacklog, "partition 1 is behind").After(2 * time.Second),
			"racing":  Refuse(503, CauseUndecided, "not decided yet").After(time.Second),
			"newer":   Refuse(503, CausePlans, "a field that is unknown").After(RetryLog),
			"fine":    nil,
		}
		for _, name := range []string{"taken", "type", "version", "behind", "racing", "newer"} {
			taskType := "order"
			if ofPlan(kinds[name]) {
				taskType = name // rows of one type have one plan
			}
			h.add(taskType, name)
		}
		bad := h.add("order", "bad")
		bad.unfit = Refuse(400, CauseHeader, "header Y")
		h.add("order", "fine") // behind all of them
		var mu sync.Mutex      // of the door's: kinds, full and asked
		full, asked := true, map[string]int{}
		door := func(r Request) {
			mu.Lock()
			defer mu.Unlock()
			if full {
				r.Answer(Answer{Err: Refuse(429, CauseFull, "full").After(2 * time.Second)})
				return
			}
			asked[r.ID]++
			r.Answer(Answer{Err: kinds[r.ID]})
		}
		relays, stop := relayingInto(t, func() *Relay {
			return newRelay(RelayConfig{Items: 3}, h, door, []string{"TASKS"}, func(string) int { return 0 })
		}, 1)
		<-time.After(time.Minute)
		synctest.Wait()
		if waiting, refused := h.left(); len(waiting) != 8 || len(refused) != 0 {
			t.Errorf("a full door: %v wait, %v are refused", waiting, refused)
		}
		if handed, _ := h.looks(); handed > 3*31 {
			t.Errorf("%d rows are handed in within a minute to a door that asks for 2 s of rest", handed)
		}
		h.mu.Lock()
		for _, row := range h.rows {
			if row != nil && row.tries != 0 && row.unfit == nil {
				t.Errorf("a full door counts as a try of %s", row.form.ID)
			}
		}
		h.mu.Unlock()
		mu.Lock()
		full = false
		mu.Unlock()
		<-time.After(10 * time.Second)
		synctest.Wait()
		if waiting, refused := h.left(); !slices.Equal(waiting, []string{"behind", "newer", "racing", "type", "version"}) || !slices.Equal(refused, []string{"bad", "taken"}) {
			t.Errorf("%v wait, %v are refused", waiting, refused)
		}
		mu.Lock()
		if asked["taken"] != 1 || asked["bad"] != 0 {
			t.Errorf("asked %v", asked)
		}
		mu.Unlock()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		mu.Lock()
		if n := asked["type"]; n < 10 || n > 20 {
			t.Errorf("asked %d times in ten minutes for a plan that is not applied", n)
		}
		kinds["type"], kinds["behind"], kinds["racing"] = nil, nil, nil
		mu.Unlock()
		<-time.After(relayAgainMax)
		synctest.Wait()
		stop()
		if waiting, _ := h.left(); !slices.Equal(waiting, []string{"newer", "version"}) {
			t.Errorf("%v wait", waiting)
		}
		if s := relays[0].Stats(); s.Relayed != 4 || s.Refused != 2 || s.PutOff < 20 {
			t.Errorf("%+v", s)
		}
	})
}

// TestRelayKnowsWhatWasStored: a row that a relay had stored before it died is not kept as refused by the next one, whose door
// finds it too late by now. The owner may take a moment to make it a task, or be far behind, also where the row was put off before
// it was stored.
func TestRelayKnowsWhatWasStored(t *testing.T) {
	same := &core.Existing{ID: "a1", Type: "order", InputHash: core.HashInput("order", []byte(`{}`))}
	other := &core.Existing{ID: "a1", Type: "order", InputHash: []byte("another")}
	for name, c := range map[string]struct {
		task  *core.Existing
		after time.Duration // the owner has read it
		away  time.Duration // the state store is
		put   int64         // so often it is put off before it is stored
		kept  bool
	}{
		"stored": {task: same}, "not read yet": {task: same, after: 3 * time.Second}, "no store": {task: same, away: 9 * time.Second}, "another's": {task: other, kept: true}, "new": {kept: true},
		"far behind": {task: same, after: 30 * time.Second}, "put off": {task: same, after: 10 * time.Second, put: 2}, "read, and no task": {after: 30 * time.Second, put: 2, kept: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, began := newHeap("a1"), time.Now()
			var asked atomic.Int64
			existing := func(context.Context, string) (*core.Existing, error) {
				switch since := time.Since(began); {
				case since < c.away:
					return nil, errAway
				case since < c.after:
					return nil, nil
				}
				return c.task, nil
			}
			relays, stop := relayingInto(t, func() *Relay {
				unread := func(_ context.Context, ids []string, _ time.Time) (map[string]bool, error) {
					return map[string]bool{ids[0]: time.Since(began) < c.after}, nil
				}
				return newRelay(RelayConfig{Existing: existing, Unread: unread}, h, func(r Request) {
					switch n := asked.Add(1); {
					case n <= c.put:
						r.Answer(Answer{Err: Refuse(404, CauseTypeUnknown, "no plan")})
						return
					case n == c.put+1:
						h.mu.Lock()
						h.lost = 1
						h.mu.Unlock()
						r.Answer(Answer{})
						return
					}
					r.Answer(Answer{Err: Refuse(400, causeCompleteByPast, "complete-by has passed")})
				}, []string{"TASKS"}, func(string) int { return 0 })
			}, 1)
			<-time.After(time.Minute)
			stop()
			waiting, refused := h.left()
			if len(waiting) != 0 || (len(refused) == 1) != c.kept || (relays[0].Stats().Refused == 1) != c.kept {
				t.Errorf("%s: %v wait, %v are refused, %+v", name, waiting, refused, relays[0].Stats())
			}
		})
	}
}

// TestRelayForgetsAnOutage: a database that was away for long, and came back, is asked soon when it is away again.
func TestRelayForgetsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeap()
		var failed atomic.Int64
		_, stop := relayingInto(t, func() *Relay {
			return newRelay(RelayConfig{Report: func(err error) {
				if err != nil {
					failed.Add(1)
				}
			}}, h, func(r Request) { r.Answer(Answer{}) }, []string{"TASKS"}, func(string) int { return 0 })
		}, 1)
		away := func(is bool, d time.Duration) {
			h.mu.Lock()
			h.away = is
			h.mu.Unlock()
			<-time.After(d)
		}
		away(true, time.Minute)
		away(false, 2*relayRestMax)
		failed.Store(0)
		away(true, 2*time.Second)
		if n := failed.Load(); n < 3 {
			t.Errorf("asked %d times in the first 2s of the second outage, want 3 at least", n)
		}
		stop()
	})
}

// TestRelayPutsOffAsLongAsTheDoorSays: a row of a partition that is far behind is not tried before the time that the door
// names.
func TestRelayPutsOffAsLongAsTheDoorSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeap("a1")
		var asked atomic.Int64
		_, stop := relayingInto(t, func() *Relay {
			return newRelay(RelayConfig{}, h, func(r Request) {
				asked.Add(1)
				r.Answer(Answer{Err: Refuse(429, CauseBacklog, "partition 1 is behind").After(20 * time.Second)})
			}, []string{"TASKS"}, func(string) int { return 0 })
		}, 1)
		<-time.After(19 * time.Second)
		synctest.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("tried %d times in 19s, want once", n)
		}
		stop()
	})
}

// TestRelayEnds: a relay that is told to end waits for the answers to what it has handed in, and writes them down.
func TestRelayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{after: 2 * time.Second}
		in, stopIn := running(t, log, nil)
		h := newHeap("a1", "a2")
		_, stop := relaying(t, in, RelayConfig{}, h, 1)
		<-time.After(time.Second)
		stop()
		stopIn()
		if waiting, _ := h.left(); len(waiting) != 0 {
			t.Errorf("%v were stored and are still there", waiting)
		}
	})
}

// TestStanding: refused rows, and rows that wait too long, are a trouble that names what is wrong.
func TestStanding(t *testing.T) {
	for _, c := range []struct {
		is   Standing
		want string
	}{
		{Standing{}, ""},
		{Standing{Waiting: 9, Oldest: relayLate}, ""},
		{Standing{Waiting: 9, Oldest: relayLate + time.Second}, "9 submissions wait to be relayed, the first for 31s"},
		{Standing{Waiting: 9, Oldest: 2 * relayLate, Refused: 3, First: "task a of type b: c (409)"}, "3 submissions are refused; the first: task a of type b: c (409)"},
	} {
		err := c.is.Trouble()
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%+v: %v, want %q", c.is, err, c.want)
		}
	}
}

// TestRelayOfManyWithoutAPlan: however many rows wait for unknown plans, rows with a known plan are submitted within
// seconds.
func TestRelayOfManyWithoutAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stopIn := running(t, &slowLog{}, nil)
		h := newHeap()
		for i := range 20_000 {
			h.add("ghost", fmt.Sprint("g", i))
		}
		_, stop := relaying(t, in, RelayConfig{}, h, 1)
		<-time.After(3 * time.Minute)
		wrote, there := time.Now(), make(chan time.Duration, 1)
		h.mu.Lock()
		h.removed = func(string) { there <- time.Since(wrote) }
		h.mu.Unlock()
		h.add("order", "o1")
		select {
		case took := <-there:
			if took > 5*time.Second {
				t.Errorf("handed in after %v", took)
			}
		case <-time.After(5 * time.Minute):
			t.Error("never handed in")
		}
		stop()
		stopIn()
	})
}

// TestRelayOfManyThatMayBeTasks: however many rows are too late and of partitions whose owners are behind, so that it is not known
// whether they are tasks, those that are in time are submitted at once. One that is not read holds up no other that is.
func TestRelayOfManyThatMayBeTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 5_000
		h := newHeap()
		for i := range late {
			h.add("late", fmt.Sprint("l", i))
		}
		var behind atomic.Bool
		behind.Store(true)
		unread := func(_ context.Context, ids []string, _ time.Time) (map[string]bool, error) {
			all := map[string]bool{}
			for _, id := range ids {
				all[id] = behind.Load() || id == "l0"
			}
			return all, nil
		}
		_, stop := relayingInto(t, func() *Relay {
			none := func(context.Context, string) (*core.Existing, error) { return nil, nil }
			return newRelay(RelayConfig{Existing: none, Unread: unread}, h, func(r Request) {
				if r.Type == "late" {
					r.Answer(Answer{Err: Refuse(400, causeCompleteByPast, "complete-by has passed")})
					return
				}
				r.Answer(Answer{})
			}, []string{"TASKS"}, func(string) int { return 0 })
		}, 1)
		<-time.After(30 * time.Second)
		h.add("order", "o1")
		<-time.After(2 * time.Second)
		if waiting, refused := h.left(); len(refused) > 0 || slices.Contains(waiting, "o1") || len(waiting) != late {
			t.Errorf("%d wait, %d are refused: want those that are late to wait, and no other", len(waiting), len(refused))
		}
		h.mu.Lock()
		if h.most > 2 {
			t.Errorf("%d takes at once", h.most)
		}
		h.mu.Unlock()
		behind.Store(false)
		<-time.After(5 * time.Minute)
		stop()
		if waiting, refused := h.left(); !slices.Equal(waiting, []string{"l0"}) || len(refused) != late-1 {
			t.Errorf("%v wait, %d are refused: want the one that is not read to wait", waiting, len(refused))
		}
	})
}

// TestRelayBesideALostStore: rows whose ids cannot be looked up hold up none behind them, however many.
func TestRelayBesideALostStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeap(manyIDs(2 * defaultRelayItems)...)
		h.add("order", "fine")
		_, stop := relayingInto(t, func() *Relay {
			return newRelay(RelayConfig{}, h, func(r Request) {
				if r.ID != "fine" {
					r.Answer(Answer{Err: Refuse(503, CauseStore, "the store does not say whether it is a task").After(RetryLog)})
					return
				}
				r.Answer(Answer{})
			}, []string{"TASKS"}, func(string) int { return 0 })
		}, 1)
		<-time.After(10 * time.Second)
		stop()
		if waiting, refused := h.left(); len(waiting) != 2*defaultRelayItems || slices.Contains(waiting, "fine") || len(refused) > 0 {
			t.Errorf("%d wait, %v are refused", len(waiting), refused)
		}
	})
}
