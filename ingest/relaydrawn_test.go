package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// TestRelayThroughAnything: rows of every kind, through drawn weather of streams, doors and database, by relays that end, lose
// their connections and stand beside each other. A row goes only when its submission is stored as it was written; one that can
// never be submitted is kept with its reason, and no other is; what waits for nothing is gone soon after the weather is calm.
//
// covers: Q4, D1, inv1
func TestRelayThroughAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := drawnRelay(rt)
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = script.play(t) })
		if len(wrong) > 0 {
			rt.Fatalf("%d faults; the first: %s", len(wrong), strings.Join(wrong[:min(5, len(wrong))], "; "))
		}
	})
}

// rowKind is what is in a row.
type rowKind int

const (
	rowFine    rowKind = iota
	rowAgain           // an id, and all the rest, as of a row before
	rowOther           // an id of a row before, with another input
	rowWithin          // a deadline by a duration
	rowLater           // a start by a delay
	rowTight           // a deadline, of a plan that refuses what has no time
	rowLate            // its plan is applied later
	rowNever           // its plan never is
	rowVersion         // nor is its version
	rowNewer           // a plan that these nodes cannot read
	rowBadJSON         // from here on: of no use to anyone
	rowBadID
	rowLarge
	rowUnfit
	rowKinds
)

// finals are the causes by which a row of a kind may be refused for good; those of deadlines wait for them.
var finals = map[rowKind][]int{
	rowWithin: {causeCompleteByPast}, rowTight: {causeCompleteByPast, causeNoTime},
	rowBadJSON: {causeInputJSON}, rowBadID: {CauseIDName}, rowLarge: {CauseInputSize}, rowUnfit: {CauseHeader},
}

// stays reports whether rows of a kind wait for as long as nothing is changed for them.
func (k rowKind) stays() bool { return slices.Contains([]rowKind{rowNever, rowVersion, rowNewer}, k) }

// tightNeed is what tasks of the plan tight take.
const tightNeed = 3 * time.Second

// drawnRow is one to be written.
type drawnRow struct {
	kind   rowKind
	stream int
	before int // of the rows that there are: whose id
	time   time.Duration
}

// gust is the weather for a while.
type gust struct {
	rows    []drawnRow
	streams []int // by stream: how it does
	door    int   // which of doorTroubles it has
	every   int   // submission that meets it
	away    bool  // the database
	lost    int
	cut     bool
	end     int // which relay is replaced by another; -1: none
	apply   bool
	unread  bool          // the plans cannot be read
	behind  time.Duration // owners are, with what is stored now
	lasts   time.Duration
}

// How a stream does.
const (
	streamFine = iota
	streamSlow
	streamSilent    // nothing is stored, or heard
	streamMute      // it stores, and nothing is heard
	streamUncertain // it stores, and an error comes
	streamDown
	streamFull
	streamKinds
)

// doorTroubles are refusals of a door that concern no row in particular.
var doorTroubles = []*Refusal{
	nil, nil, nil,
	Refuse(429, CauseBacklog, "behind").After(2 * time.Second),
	Refuse(429, CauseBacklog, "far behind").After(5 * time.Minute),
	Refuse(503, CauseUndecided, "not decided").After(time.Second),
	Refuse(429, CauseFull, "full").After(RetryFull),
	Refuse(503, CauseStopping, "closing").After(retryUnknown),
	Refuse(503, CauseStore, "no answer"),
}

// relayScript is one case.
type relayScript struct {
	streams, relays, packItems, items int
	room                              int // of each stream in a door
	gusts                             []gust
}

func drawnRelay(t *rapid.T) *relayScript {
	s := &relayScript{
		streams: rapid.IntRange(1, 3).Draw(t, "streams"), relays: rapid.IntRange(1, 2).Draw(t, "relays"),
		room: rapid.IntRange(12, 40).Draw(t, "room"), packItems: rapid.IntRange(1, 9).Draw(t, "pack"), items: rapid.IntRange(1, 9).Draw(t, "items"),
	}
	row := rapid.Custom(func(t *rapid.T) drawnRow {
		return drawnRow{
			kind: rowKind(rapid.IntRange(0, int(rowKinds)-1).Draw(t, "kind")), stream: rapid.IntRange(0, s.streams-1).Draw(t, "stream"),
			before: rapid.IntRange(0, 1000).Draw(t, "before"), time: time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond,
		}
	})
	s.gusts = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) gust {
		return gust{
			rows:    rapid.SliceOfN(row, 0, 12).Draw(t, "rows"),
			streams: rapid.SliceOfN(rapid.IntRange(0, streamKinds-1), s.streams, s.streams).Draw(t, "weather"),
			door:    rapid.IntRange(0, len(doorTroubles)-1).Draw(t, "door"), every: rapid.IntRange(1, 4).Draw(t, "every"),
			away: rapid.IntRange(0, 5).Draw(t, "away") == 5, lost: max(0, rapid.IntRange(-3, 2).Draw(t, "lost")), cut: rapid.IntRange(0, 3).Draw(t, "cut") == 3,
			end: rapid.IntRange(-2, s.relays-1).Draw(t, "end"), apply: rapid.Bool().Draw(t, "apply"), unread: rapid.IntRange(0, 5).Draw(t, "unread") == 5,
			behind: time.Duration(max(0, rapid.IntRange(-8_000, 15_000).Draw(t, "behind"))) * time.Millisecond, lasts: time.Duration(rapid.IntRange(10, 8_000).Draw(t, "ms")) * time.Millisecond,
		}
	}), 1, 6).Draw(t, "gusts")
	return s
}

// relayWorld is where a script is played.
type relayWorld struct {
	t      *testing.T
	script *relayScript
	heap   *heap
	stops  []func() // of relays
	began  int

	mu      sync.Mutex
	now     gust
	known   map[string]*core.Plan // plans by type
	asked   int
	seq     uint64
	stored  map[string]map[string]core.Submission // by id and input: as it was stored last
	read    map[string]time.Time                  // by id and input: when its owner has read it
	acked   map[string]int                        // answers that it is stored, by id and input
	relayed map[string]int                        // verdicts that it is, by id and input
	by      RelayStats                            // what all relays said
	told    RelayStats                            // what they counted
	wrong   []string
}

func (w *relayWorld) fail(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (s *relayScript) play(t *testing.T) []string {
	w := &relayWorld{t: t, script: s, heap: newHeap(), stored: map[string]map[string]core.Submission{}, read: map[string]time.Time{}, acked: map[string]int{}, relayed: map[string]int{}}
	w.known = map[string]*core.Plan{}
	for _, name := range []string{"order", "tight"} {
		w.known[name] = &core.Plan{Name: name, Version: 3, InputMax: 1000, CompleteBy: time.Hour}
	}
	w.known["tight"].Admission = core.AdmissionRefuse
	w.heap.judged = w.judged
	var doors []func()
	defer func() {
		for _, stop := range doors {
			stop()
		}
	}()
	ins := make([]*Ingest, s.relays) // a node has a door and a relay
	for i := range ins {
		in, stop := w.door()
		doors = append(doors, stop)
		ins[i] = in
		w.stops = append(w.stops, w.relay(in))
	}
	for i := range s.gusts {
		w.blow(s.gusts[i], ins)
	}
	w.set(gust{streams: make([]int, s.streams), every: 1, apply: true})
	<-time.After(2*relayAgainMax + relayRestMax)
	synctest.Wait()
	for _, stop := range w.stops {
		stop()
	}
	w.check()
	return w.wrong
}

// door is one that serves, with its plans.
func (w *relayWorld) door() (*Ingest, func()) {
	door, err := NewDoor(Config{
		StreamOf: streamName(w.script.streams), Partitions: w.script.streams, PartitionOf: byDigit, PackItems: w.script.packItems, ItemsMax: w.script.room * w.script.streams,
		UnknownMax: 5, Admit: func(_ core.Instant, _ *core.Plan, left time.Duration) string {
			if left < tightNeed {
				return "too little time"
			}
			return ""
		},
	}, w, w)
	if err != nil {
		w.t.Fatal(err)
	}
	in := New(door, clock)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	return in, func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// relay runs one into a door that has troubles of its own.
func (w *relayWorld) relay(in *Ingest) (stop func()) {
	names := make([]string, w.script.streams)
	for i := range names {
		names[i] = streamName(w.script.streams)(i)
	}
	relays, end := relayingInto(w.t, func() *Relay {
		return newRelay(RelayConfig{Items: w.script.items, Existing: w.existing, Unread: w.notRead}, w.heap, func(r Request) {
			if trouble := w.trouble(); trouble != nil {
				r.Answer(Answer{Err: trouble})
				return
			}
			in.Submit(w.watched(r))
		}, names, func(id string) int { return byDigit(id, w.script.streams) })
	}, 1)
	return func() {
		end()
		s := relays[0].Stats()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told.Relayed, w.told.Refused, w.told.PutOff = w.told.Relayed+s.Relayed, w.told.Refused+s.Refused, w.told.PutOff+s.PutOff
	}
}

func (w *relayWorld) trouble() *Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked++; w.asked%w.now.every != 0 {
		return nil
	}
	return doorTroubles[w.now.door]
}

// existing is what the owners made of an id: only rows whose id no other has are looked up.
func (w *relayWorld) existing(_ context.Context, id string) (*core.Existing, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for input, sub := range w.stored[id] {
		if time.Now().Before(w.read[id+input]) {
			continue
		}
		w.acked[id+input]++
		return &core.Existing{ID: id, Type: sub.Type, InputHash: core.HashInput(sub.Type, sub.Input)}, nil
	}
	return nil, nil
}

// notRead is RelayConfig.Unread.
func (w *relayWorld) notRead(_ context.Context, ids []string, _ time.Time) (map[string]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unread := map[string]bool{}
	for _, id := range ids {
		for input := range w.stored[id] {
			unread[id] = unread[id] || time.Now().Before(w.read[id+input])
		}
	}
	return unread, nil
}

// watched has the answers to a request counted, and looked at while they are new.
func (w *relayWorld) watched(r Request) Request {
	answer, said := r.Answer, clock().Add(-r.Ago)
	r.Answer = func(a Answer) {
		w.mu.Lock()
		switch within, _ := time.ParseDuration(r.CompleteBy); {
		case a.Err == nil:
			w.acked[r.ID+string(r.Input)]++
		case a.Err.ErrCode == causeCompleteByPast && clock() < said.Add(within):
			w.fail("%s is refused as past, %v before its time", r.ID, said.Add(within).Sub(clock()))
		case a.Err.ErrCode == causeNoTime && clock() <= said.Add(within-tightNeed):
			w.fail("%s is refused, with time enough", r.ID)
		}
		w.mu.Unlock()
		answer(a)
	}
	return r
}

// blow has the weather for its time.
func (w *relayWorld) blow(g gust, ins []*Ingest) {
	w.set(g)
	<-time.After(g.lasts)
	if g.cut {
		w.heap.cut()
	}
	if g.end >= 0 {
		w.stops[g.end]()
		w.stops[g.end] = w.relay(ins[g.end])
	}
}

func (w *relayWorld) set(g gust) {
	w.mu.Lock()
	w.now = g
	if g.apply {
		w.known["late"] = &core.Plan{Name: "late", Version: 1, InputMax: 1000, CompleteBy: time.Hour}
	}
	w.mu.Unlock()
	w.heap.mu.Lock()
	w.heap.away, w.heap.lost = g.away, g.lost
	w.heap.mu.Unlock()
	for i := range g.rows {
		w.write(&g.rows[i])
	}
}

// write writes a row.
func (w *relayWorld) write(r *drawnRow) {
	w.began++
	form := submit.Form{Type: "order", ID: fmt.Sprintf("t%d-%d", w.began, r.stream), Input: fmt.Appendf(nil, `{"n":%d}`, w.began)}
	var unfit *Refusal
	kind := r.kind
	switch kind {
	case rowAgain, rowOther:
		before := w.heap.some(r.before)
		switch {
		case before == nil || finals[before.kind] != nil || before.kind == rowLater:
			kind = rowFine
		case kind == rowAgain:
			form, kind = before.form, before.kind
		default:
			form.ID = before.form.ID
		}
	case rowWithin:
		form.CompleteBy = r.time.String()
	case rowTight:
		form.Type, form.CompleteBy = "tight", r.time.String()
	case rowLater:
		form.StartAt = r.time.String()
	case rowLate:
		form.Type = "late"
	case rowNever:
		form.Type = "never"
	case rowNewer:
		form.Type = "newer"
	case rowVersion:
		form.Version = "9"
	case rowBadJSON:
		form.Input = []byte(`{`)
	case rowBadID:
		form.ID = "no id!"
	case rowLarge:
		form.Input = jsonOf(1001)
	case rowUnfit:
		unfit = Refuse(400, CauseHeader, "header X")
	}
	w.heap.write(form, kind, unfit)
}

// Plan implements Plans, with the next two.
func (w *relayWorld) Plan(taskType string, version int64) *core.Plan {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.known[taskType]; p != nil && (version == 0 || version == p.Version) {
		return p
	}
	return nil
}

func (w *relayWorld) Deprecated(string, int64) bool { return false }

func (w *relayWorld) Reload(done func(error)) {
	w.mu.Lock()
	unread := w.now.unread
	w.mu.Unlock()
	if unread {
		done(errors.New("away"))
		return
	}
	done(core.UnreadablePlans{{Name: "newer", Version: 4, Err: errors.New("a field")}})
}

// Publish implements Log.
func (w *relayWorld) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	subs = slices.Clone(subs)
	is := w.now.streams[partition%w.script.streams]
	var err error
	after := 2 * time.Millisecond
	switch is {
	case streamSilent:
		return
	case streamDown:
		err = ErrLogDown
	case streamFull:
		err = ErrLogFull
	case streamUncertain:
		err = errors.New("the answer was lost")
	case streamSlow:
		after = 5 * relayPatience
	}
	time.AfterFunc(after, func() {
		w.mu.Lock()
		w.seq++
		seq := w.seq
		if is != streamDown && is != streamFull {
			w.store(partition, subs)
		}
		w.mu.Unlock()
		if is != streamMute {
			done(seq, err)
		}
	})
}

func (w *relayWorld) store(partition int, subs []core.Submission) {
	for i := range subs {
		s := &subs[i]
		if byDigit(s.ID, w.script.streams) != partition {
			w.fail("%s is stored in partition %d", s.ID, partition)
		}
		if w.stored[s.ID] == nil {
			w.stored[s.ID] = map[string]core.Submission{}
		}
		w.stored[s.ID][string(s.Input)] = *s
		if key := s.ID + string(s.Input); w.read[key].IsZero() {
			w.read[key] = time.Now().Add(w.now.behind)
		}
	}
}

// judged hears of each verdict, whether it was written down or lost.
func (w *relayWorld) judged(row *heapRow, v *Verdict, _ bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kind, key := row.kind, row.form.ID+string(row.form.Input)
	switch {
	case v.Refused == nil:
		w.by.Relayed++
		w.relayed[key]++
		w.asWritten(row)
	case v.Again > 0:
		w.by.PutOff++
		if v.Again < relayAgain || v.Again > relayAgainMax || v.Refused == nil {
			w.fail("row %d is put off for %v", row.number, v.Again)
		}
	default:
		w.by.Refused++
		if _, is := w.stored[row.form.ID][string(row.form.Input)]; is {
			w.fail("row %d of kind %d is stored, and refused for good: %s", row.number, kind, v.Refused)
		}
		if !slices.Contains(finals[kind], v.Refused.ErrCode) {
			w.fail("row %d of kind %d is refused for good: %d %s", row.number, kind, v.Refused.ErrCode, v.Refused)
		}
	}
}

// asWritten compares what is stored with a row that is to go.
func (w *relayWorld) asWritten(row *heapRow) {
	is, stored := w.stored[row.form.ID][string(row.form.Input)]
	within, _ := time.ParseDuration(row.form.CompleteBy)
	delay, _ := time.ParseDuration(row.form.StartAt)
	written := core.InstantOf(row.written)
	switch {
	case !stored || is.Type != row.form.Type:
		w.fail("row %d, %s, goes and is not stored", row.number, row.form.ID)
	case row.kind >= rowBadJSON || row.kind.stays():
		w.fail("row %d of kind %d is stored", row.number, row.kind)
	case within > 0 && is.CompleteBy != written.Add(within), within == 0 && is.CompleteBy != 0:
		w.fail("row %d is stored with the deadline %v, want %v after %v", row.number, is.CompleteBy, within, written)
	case is.StartAt != 0 && is.StartAt != written.Add(delay), is.StartAt == 0 && clock() < written.Add(delay):
		w.fail("row %d is stored with the start %v, want %v after %v", row.number, is.StartAt, delay, written)
	}
}

func (w *relayWorld) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heap.mu.Lock()
	defer w.heap.mu.Unlock()
	for _, row := range w.heap.rows {
		switch {
		case row == nil:
		case row.taken:
			w.fail("row %d is held by no relay that runs", row.number)
		case row.reason == nil && !row.kind.stays():
			w.fail("row %d of kind %d, written at %v, still waits after %d tries", row.number, row.kind, row.written, row.tries)
		}
	}
	for key, n := range w.acked {
		if w.relayed[key] != n {
			w.fail("%s was answered as stored %d times, and %d rows were said to go", key, n, w.relayed[key])
		}
	}
	if w.told != w.by {
		w.fail("the relays counted %+v, want %+v", w.told, w.by)
	}
}
