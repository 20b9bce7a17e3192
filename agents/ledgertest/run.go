// Package ledgertest holds an implementation of agents.Ledger to its contract: a do that comes again or at the same time, an
// undo that comes first, again or while the do works, work that fails or panics, and the tombstone that stays.
//
//	func TestLedger(t *testing.T) {
//		ledgertest.Run(t, ledgertest.Subject{Ledger: mine, Service: where})
//	}
package ledgertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// Service is where the work of a ledger takes effect. A ledger that lends its transaction to the work is tried with a
// service that writes there.
type Service interface {
	Do(ctx context.Context, key string) error   // makes one effect
	Undo(ctx context.Context, key string) error // takes one back
	Standing(key string) (int, error)           // effects that stand
}

// Subject is a ledger with its service.
type Subject struct {
	Ledger  agents.Ledger
	Service Service
	// Failure is what work that fails without an effect returns; nil: an error without a code.
	Failure error
	// Stays says that a do whose work has panicked is not done again.
	Stays bool
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

var errWork = errors.New("work failed")

// Run runs the tests against a ledger. Its keys are its own: others may be there.
func Run(t *testing.T, s Subject) {
	if s.Failure == nil {
		s.Failure = errWork
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Subject)
	}{
		{"one key", testOneKey}, {"one at a time", testOneAtATime}, {"at the same time", testAtTheSameTime},
		{"storm", testStorm}, {"panic", testPanic}, {"results", testResults}, {"keys", testKeys},
		{"time is over", testTimeIsOver}, {"probes", testProbes}, {"refusals", testRefusals},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, &s) })
	}
}

// play is the life of one key.
type play struct {
	*testing.T
	*Subject
	key string
	dos atomic.Int32 // works of do that have begun; a ledger may have one run again whose transaction was rolled back
}

func (s *Subject) play(t *testing.T) *play {
	return &play{T: t, Subject: s, key: "ledgertest-" + rand.Text() + "/charge/0"}
}

// do is a do whose answer names the work that gave it: 1, 2, 3 …
func (p *play) do(fail error) (string, error) {
	result, err := p.Ledger.Do(p.Context(), p.key, func(ctx context.Context) ([]byte, error) {
		n := p.dos.Add(1)
		if fail != nil {
			return nil, fail
		}
		if err := p.Service.Do(ctx, p.key); err != nil {
			return nil, err
		}
		return fmt.Appendf(nil, `{"work":%d}`, n), nil
	})
	return string(result), err
}

// undo gives what its work was told: nothing, if there was no work.
func (p *play) undo(fail error) (told string, err error) {
	err = p.Ledger.Undo(p.Context(), p.key, func(ctx context.Context, result []byte, known bool) error {
		if told = "unknown"; known {
			told = "known " + string(result)
		}
		if fail != nil {
			return fail
		}
		if known {
			return p.Service.Undo(ctx, p.key)
		}
		return nil
	})
	return told, err
}

func (p *play) stands(want int) {
	p.Helper()
	if got, err := p.Service.Standing(p.key); err != nil || got != want {
		p.Errorf("%d effects stand (%v), want %d", got, err, want)
	}
}

// word plays one word of a script.
func (p *play) word(word string) string {
	var said string
	var err error
	switch word {
	case "do":
		said, err = p.do(nil)
	case "do!":
		said, err = p.do(p.Failure)
	case "undo":
		said, err = p.undo(nil)
	case "undo!":
		said, err = p.undo(errWork)
	default:
		p.Fatalf("no such word: %q", word)
	}
	return outcome(said, err)
}

// outcome is a word for what came of a call.
func outcome(said string, err error) string {
	switch {
	case err == nil:
		return said
	case errors.Is(err, agents.ErrGone):
		return "gone"
	case errors.Is(err, agents.ErrInProgress):
		return "in progress"
	}
	return "failed"
}

func testOneKey(t *testing.T, s *Subject) {
	for _, test := range []struct {
		script, want string
		standing     int
	}{
		{"do do", `{"work":1}, {"work":1}`, 1},
		{"do do undo undo do", `{"work":1}, {"work":1}, known {"work":1}, , gone`, 0},
		{"undo do undo", "unknown, gone, ", 0},
		{"do! do do", `failed, {"work":2}, {"work":2}`, 1},
		{"do! undo do", "failed, unknown, gone", 0},
		{"do undo! do undo undo", `{"work":1}, failed, gone, known {"work":1}, `, 0},
		{"undo! do undo do", "failed, gone, unknown, gone", 0},
		{"undo! undo! undo", "failed, failed, unknown", 0},
	} {
		t.Run(test.script, func(t *testing.T) {
			p := s.play(t)
			var got []string
			for word := range strings.FieldsSeq(test.script) {
				got = append(got, p.word(word))
			}
			if got := strings.Join(got, ", "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			p.stands(test.standing)
		})
	}
}

func testOneAtATime(t *testing.T, s *Subject) {
	p, other := s.play(t), s.play(t)
	result, err := s.Ledger.Do(t.Context(), p.key, func(ctx context.Context) ([]byte, error) {
		if got := p.word("do"); got != "in progress" {
			t.Errorf("do within do: %s", got)
		}
		if got := p.word("undo"); got != "in progress" {
			t.Errorf("undo within do: %s", got)
		}
		if got := other.word("do"); got != `{"work":1}` {
			t.Errorf("do of another key: %s", got)
		}
		return []byte(`"first"`), s.Service.Do(ctx, p.key)
	})
	if err != nil || string(result) != `"first"` {
		t.Fatalf("%s %v", result, err)
	}
	// The undo that was refused has left no tombstone.
	if got := p.word("do"); got != `"first"` {
		t.Errorf("do again: %s", got)
	}
	err = s.Ledger.Undo(t.Context(), p.key, func(ctx context.Context, _ []byte, _ bool) error {
		if got := p.word("undo"); got != "in progress" {
			t.Errorf("undo within undo: %s", got)
		}
		if got := p.word("do"); got != "gone" {
			t.Errorf("do within undo: %s", got)
		}
		return s.Service.Undo(ctx, p.key)
	})
	if err != nil {
		t.Fatal(err)
	}
	p.stands(0)
	other.stands(1)
}

// until tries again while the key is at work elsewhere.
func (p *play) until(word string) string {
	for end := time.Now().Add(patience); ; {
		got := p.word(word)
		if got != "in progress" || time.Now().After(end) {
			return got
		}
		<-time.After(time.Millisecond)
	}
}

func testAtTheSameTime(t *testing.T, s *Subject) {
	p := s.play(t)
	answers := make([]string, 16)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = p.until("do") })
	}
	all.Wait()
	for i, answer := range answers {
		if answer != answers[0] || !strings.HasPrefix(answer, `{"work":`) {
			t.Errorf("answer %d: %s, want %s", i, answer, answers[0])
		}
	}
	p.stands(1)
}

// Dos and undos of the same keys, in any order: no key has two effects, and none has one once its undo has succeeded.
func testStorm(t *testing.T, s *Subject) {
	plays := []*play{s.play(t), s.play(t), s.play(t), s.play(t)}
	var all sync.WaitGroup
	for i := range 64 {
		p := plays[i%len(plays)]
		all.Go(func() { p.word("do") })
		if i >= 32 {
			all.Go(func() { p.word("undo") })
		}
	}
	all.Wait()
	for _, p := range plays {
		if got := p.until("undo"); got == "failed" || got == "in progress" {
			t.Errorf("undo: %s", got)
		}
		if got := p.word("do"); got != "gone" {
			t.Errorf("do after it: %s", got)
		}
		p.stands(0)
	}
}

func testPanic(t *testing.T, s *Subject) {
	p := s.play(t)
	func() {
		defer func() { _ = recover() }()
		_, _ = s.Ledger.Do(t.Context(), p.key, func(context.Context) ([]byte, error) { panic("boom") })
	}()
	if got := p.word("do"); !s.Stays && got != `{"work":1}` || s.Stays && got != "failed" {
		t.Errorf("do after a panic: %s", got)
	}
	func() {
		defer func() { _ = recover() }()
		_ = s.Ledger.Undo(t.Context(), p.key, func(context.Context, []byte, bool) error { panic("boom") })
	}()
	if got := p.word("do"); got != "gone" {
		t.Errorf("do after an undo that panicked: %s", got)
	}
	if got := p.word("undo"); got == "failed" || got == "in progress" {
		t.Errorf("undo after a panic: %s", got)
	}
	p.stands(0)
}

func testResults(t *testing.T, s *Subject) {
	for _, want := range []string{"", "null", `"é \u0000 ' \\"`, "\x00\xff", strings.Repeat("r", core.ResultBytesMax)} {
		p := s.play(t)
		for try := range 2 {
			got, err := s.Ledger.Do(t.Context(), p.key, func(context.Context) ([]byte, error) { return []byte(want), nil })
			if err != nil || string(got) != want {
				t.Errorf("%d. do: %d bytes %v, want %d", try+1, len(got), err, len(want))
			}
		}
		err := s.Ledger.Undo(t.Context(), p.key, func(_ context.Context, got []byte, known bool) error {
			if !known || string(got) != want {
				t.Errorf("undo: %d bytes, known %t, want %d", len(got), known, len(want))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	p := s.play(t)
	for range 2 {
		if got, err := s.Ledger.Do(t.Context(), p.key, func(context.Context) ([]byte, error) { return nil, nil }); err != nil || len(got) > 0 {
			t.Errorf("no result: %q %v", got, err)
		}
	}
}

// Keys that are near each other are not each other.
func testKeys(t *testing.T, s *Subject) {
	id := "ledgertest-" + rand.Text()
	keys := []string{
		core.Key(id, "charge", 0), core.Key(id, "charge", 1), core.Key(id, "charge", 17), core.Key(id, "Charge", 0),
		core.Key(id+"~each~12", "charge", 0), core.Key(id+"=7Each=7E12", "charge", 0),
		core.Key(id+strings.Repeat("~n", 100), strings.Repeat("s", 64), 100_000),
	}
	for _, key := range keys {
		p := s.play(t)
		p.key = key
		if got := p.word("do"); got != `{"work":1}` {
			t.Errorf("key %s: %s", key, got)
		}
		p.stands(1)
	}
}

func testTimeIsOver(t *testing.T, s *Subject) {
	p := s.play(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Ledger.Do(ctx, p.key, func(context.Context) ([]byte, error) {
		cancel()
		return nil, s.Failure
	})
	if err == nil {
		t.Error("a do that failed has succeeded")
	}
	if got := p.until("do"); got != `{"work":1}` {
		t.Errorf("do after one whose time was over: %s", got)
	}
	ctx, cancel = context.WithCancel(t.Context())
	err = s.Ledger.Undo(ctx, p.key, func(context.Context, []byte, bool) error {
		cancel()
		return errWork
	})
	if err == nil {
		t.Error("an undo that failed has succeeded")
	}
	if got := p.word("do"); got != "gone" {
		t.Errorf("do after an undo whose time was over: %s", got)
	}
	if got := p.until("undo"); got != `known {"work":1}` {
		t.Errorf("undo after one whose time was over: %s", got)
	}
	p.stands(0)
}

func testProbes(t *testing.T, s *Subject) {
	ledger, ok := s.Ledger.(agents.ProbingLedger)
	if !ok {
		t.Skip("it answers no probes")
	}
	p := s.play(t)
	expect := func(when string, want core.ProbeOutcome, result string) {
		t.Helper()
		got, err := ledger.Probe(t.Context(), p.key)
		if want == core.ProbeAbsent && errors.Is(err, agents.ErrNotKnown) {
			return
		}
		if err != nil || got.Outcome != want || string(got.Result) != result {
			t.Errorf("%s: %s %q %v, want %s %q", when, got.Outcome, got.Result, err, want, result)
		}
	}
	expect("before", core.ProbeAbsent, "")
	if got := p.word("do!"); got != "failed" {
		t.Error(got)
	}
	expect("after work that failed", core.ProbeAbsent, "")
	if _, err := ledger.Do(t.Context(), p.key, func(context.Context) ([]byte, error) {
		expect("in do", core.ProbeInProgress, "")
		return []byte("7"), nil
	}); err != nil {
		t.Error(err)
	}
	expect("after do", core.ProbeDone, "7")
	if err := ledger.Undo(t.Context(), p.key, func(context.Context, []byte, bool) error {
		expect("in undo", core.ProbeInProgress, "")
		return errWork
	}); !errors.Is(err, errWork) {
		t.Error(err)
	}
	expect("after undo that failed", core.ProbeInProgress, "")
	if err := ledger.Undo(t.Context(), p.key, func(context.Context, []byte, bool) error { return nil }); err != nil {
		t.Error(err)
	}
	expect("after undo", core.ProbeAbsent, "")
}

// What work refuses reaches the caller with its code.
func testRefusals(t *testing.T, s *Subject) {
	refusal := agents.Refuse(409, errors.New("not this one"))
	p := s.play(t)
	_, err := p.do(refusal)
	coded, ok := errors.AsType[*agents.Error](err)
	if !errors.Is(err, refusal) || !ok || coded.Code != 409 {
		t.Errorf("do: %v", err)
	}
	if _, err := p.undo(refusal); !errors.Is(err, refusal) {
		t.Errorf("undo: %v", err)
	}
	p.stands(0)
}
