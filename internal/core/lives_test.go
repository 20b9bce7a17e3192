package core

import (
	"bufio"
	"crypto/sha256"
	"flag"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	lives      = flag.Int("lives", 2000, "how many lives TestGraphs and TestStorms run each")
	livesSeed  = flag.Uint64("lives.seed", 1, "the first of them")
	livesTrace = flag.String("lives.trace", "", "a file for all that those lives come to, to compare with what another version writes")
)

// livesFile says what lives come to, a line for each block of them: its digest. A change that is to change nothing the
// core says leaves all lines; one that changes what the core says rewrites them:
//
//	go test ./internal/core -run 'TestGraphs|TestStorms' -lives 50000 -rewrite
//
// Where two versions of the core part, the first line of their traces that differs says:
//
//	go test ./internal/core -run TestGraphs -lives.seed 501 -lives 500 -lives.trace FILE
const livesFile = "testdata/lives.txt"

// movesFile are the allowed moves of steps: the kind of a row, the status of its step before and after it. Lives make no
// other; -rewrite adds those that they make.
const movesFile = "testdata/moves.txt"

// livesBlock is how many lives one digest is of.
const livesBlock = 500

// witness keeps what the core says in lives: the records and effects of every event, the row, what is due, what is refused and
// why, and from time to time all that people are shown. It knows nothing of how a task keeps that. A nil one keeps nothing.
type witness struct {
	kind  string // of lives
	h     hash.Hash
	to    io.Writer
	trace *bufio.Writer
	file  *os.File
	found []string // the lines of livesFile that hold for them
	lines []string // digests of whole blocks
	moves map[string]bool
}

func newWitness(t *testing.T, kind string) *witness {
	t.Helper()
	w := &witness{kind: kind, h: sha256.New(), moves: map[string]bool{}}
	w.to = w.h
	data, err := os.ReadFile(livesFile)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	w.found = strings.Split(strings.TrimSpace(string(data)), "\n")
	if *livesTrace != "" {
		if w.file, err = os.Create(*livesTrace + "." + kind); err != nil {
			t.Fatal(err)
		}
		w.trace = bufio.NewWriter(w.file)
		w.to = io.MultiWriter(w.h, w.trace)
	}
	return w
}

// saw keeps what became of an event.
func (w *witness) saw(what string, at Instant, p *Plan, t *Task, out *Outcome, journal []Record, err error) {
	if w == nil {
		return
	}
	_, _ = fmt.Fprintf(w.to, "%s at %d: %v\n", what, at, err)
	if err != nil {
		return
	}
	for i := range out.Records {
		_, _ = fmt.Fprintf(w.to, " %+v\n", out.Records[i])
	}
	for i := range out.Effects {
		_, _ = fmt.Fprintf(w.to, " %+v\n", out.Effects[i])
	}
	row := *t
	row.Steps, row.Input, row.InputHash = nil, nil, nil
	_, _ = fmt.Fprintf(w.to, " %v %+v due %d wake %d blocked %b\n", out.Row, row, t.NextDue(p), t.nextWake(p, at), t.Blocked(p, at).low)
	for i := range t.Steps {
		s := &t.Steps[i]
		_, _ = fmt.Fprintf(w.to, " %s %d %d %d %d %d key %d place %v open %v result %s input %s seen %s\n", t.StepWord(i), s.Attempt, s.Out,
			s.Due, s.Awaits, s.Copy, t.keyUntil(p, i), t.Occupies(p, i), t.openUndo(p, i), s.Result, t.InputOf(i), t.Seen(i))
	}
	if t.Seq%8 == 0 || t.State.Ended() {
		v := t.View(p, journal, at)
		v.task, v.plan = nil, nil
		_, _ = fmt.Fprintf(w.to, " %+v\n", v)
	}
}

// moved keeps how the rows of a life moved its steps.
func (w *witness) moved(p *Plan, row *Task, journal []Record) {
	if w == nil {
		return
	}
	pl := Play(p, &Saved{Row: *row, Journal: journal})
	for i := range journal {
		r, from := &journal[i], StepWaiting
		if r.Step >= 0 {
			from = pl.t.Steps[r.Step].Status
		}
		if _, err := pl.Next(); err != nil {
			panic(breach(err.Error()))
		}
		if r.Step >= 0 {
			w.moves[fmt.Sprintf("%s: %s to %s", r.Kind, from, r.StepStatus)] = true
		}
	}
}

// judgeMoves compares the moves with those of the file, or adds them there.
func (w *witness) judgeMoves(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(movesFile)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	for move := range w.moves {
		if slices.Contains(all, move) {
			continue
		}
		if all = append(all, move); !*rewrite {
			t.Errorf("%s: %s allows no such row", move, movesFile)
		}
	}
	if *rewrite {
		slices.Sort(all)
		if err := os.WriteFile(movesFile, []byte(strings.TrimSpace(strings.Join(all, "\n"))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// lived ends a life: of the last one of a block the digest is that of the block.
func (w *witness) lived(seed uint64) {
	if seed%livesBlock == 0 {
		w.lines = append(w.lines, fmt.Sprintf("%s %d..%d %x", w.kind, seed+1-livesBlock, seed, w.h.Sum(nil)[:8]))
		w.h.Reset()
	}
}

// judge compares the digests with those of the file, or writes them there.
func (w *witness) judge(t *testing.T) {
	t.Helper()
	if w.file != nil {
		if err := w.trace.Flush(); err != nil {
			t.Error(err)
		}
		if err := w.file.Close(); err != nil {
			t.Error(err)
		}
	}
	w.judgeMoves(t)
	if (*livesSeed-1)%livesBlock != 0 {
		return // the first block is not whole
	}
	if *rewrite {
		w.rewrite(t)
		return
	}
	want := map[string]string{}
	for _, line := range w.found {
		if at := strings.LastIndexByte(line, ' '); at > 0 {
			want[line[:at]] = line[at+1:]
		}
	}
	for _, line := range w.lines {
		at := strings.LastIndexByte(line, ' ')
		if is, known := want[line[:at]]; known && is != line[at+1:] {
			t.Errorf("what the lives %s come to is not what it was: %s tells how to see the first event that differs", line[:at], "livesFile in lives_test.go")
		}
	}
}

// rewrite puts the digests in the place of those of their kind.
func (w *witness) rewrite(t *testing.T) {
	t.Helper()
	var all []string
	for _, line := range w.found {
		if line != "" && !strings.HasPrefix(line, w.kind+" ") {
			all = append(all, line)
		}
	}
	all = append(all, w.lines...)
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(firstWord(a), firstWord(b)) })
	if err := os.WriteFile(livesFile, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func firstWord(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return word
}

// TestStorms is TestStormThenCalm with lives that are drawn evenly, each from its seed.
func TestStorms(t *testing.T) {
	w := newWitness(t, "storm")
	for i := range *lives {
		seed := *livesSeed + uint64(i)
		if what := liveStorm(seed, w); what != "" {
			t.Errorf("seed %d: %s", seed, what)
		}
		w.lived(seed)
	}
	w.judge(t)
}

// liveStorm lives one life and says what it broke, empty: nothing.
func liveStorm(seed uint64, w *witness) (what string) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case breach:
			what = string(cause)
		default:
			panic(cause)
		}
	}()
	s := newStorm(breaks{}, chance{rng: rand.New(rand.NewPCG(seed, 0))}, w)
	for range s.n("events", 200) {
		s.step()
	}
	s.calm()
	s.drain()
	w.moved(s.plan, &s.row, s.journal)
	return ""
}

// breaks is a failer that ends a life with a breach.
type breaks struct{}

func (breaks) Helper() {}

func (breaks) Fatalf(format string, args ...any) { panic(breach(fmt.Sprintf(format, args...))) }
