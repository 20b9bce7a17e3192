package agents_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// play runs the words of a script against one key of a ledger. The work of do
// answers 1, 2, 3 …, so that a remembered result shows.
type play struct {
	t        *testing.T
	ledger   *agents.MemoryLedger
	now      core.Instant
	dos      int
	undos    int
	standing int // effects that stand
}

func newPlay(t *testing.T, age time.Duration, keysMax int) *play {
	p := &play{t: t, now: 1}
	p.ledger = agents.NewMemoryLedger(func() core.Instant { return p.now }, age, keysMax)
	return p
}

var errWork = errors.New("work failed")

func (p *play) do(key string, fail error) string {
	result, err := p.ledger.Do(p.t.Context(), key, func(context.Context) ([]byte, error) {
		p.dos++
		if fail != nil {
			return nil, fail
		}
		p.standing++
		return []byte{'0' + byte(p.dos)}, nil
	})
	if err != nil {
		return err.Error()
	}
	return string(result)
}

func (p *play) undo(key string, fail error) string {
	saw := "remembered"
	err := p.ledger.Undo(p.t.Context(), key, func(_ context.Context, result []byte, known bool) error {
		p.undos++
		if saw = "unknown"; known {
			saw = "known " + string(result)
		}
		if fail == nil && p.standing > 0 {
			p.standing--
		}
		return fail
	})
	if err != nil {
		return err.Error()
	}
	return saw
}

func (p *play) step(word string) string {
	switch word {
	case "do":
		return p.do("k", nil)
	case "do!":
		return p.do("k", errWork)
	case "undo":
		return p.undo("k", nil)
	case "undo!":
		return p.undo("k", errWork)
	}
	p.t.Fatalf("no such word: %q", word)
	return ""
}

// covers: S40, D6, inv7
func TestLedgerOfOneKey(t *testing.T) {
	gone := agents.ErrGone.Error()
	for _, test := range []struct {
		script   string
		want     []string
		standing int
	}{
		{"do do", []string{"1", "1"}, 1},
		{"do do undo undo do", []string{"1", "1", "known 1", "remembered", gone}, 0},
		{"undo do undo", []string{"unknown", gone, "remembered"}, 0},
		{"do! do do", []string{errWork.Error(), "2", "2"}, 1},
		{"do! undo do", []string{errWork.Error(), "unknown", gone}, 0},
		{"do undo! do undo undo", []string{"1", errWork.Error(), gone, "known 1", "remembered"}, 0},
	} {
		t.Run(test.script, func(t *testing.T) {
			p := newPlay(t, 0, 0)
			for i, word := range strings.Fields(test.script) {
				if got := p.step(word); got != test.want[i] {
					t.Errorf("%d. %s: got %q, want %q", i+1, word, got, test.want[i])
				}
			}
			if p.standing != test.standing {
				t.Errorf("%d effects stand, want %d", p.standing, test.standing)
			}
		})
	}
}

// covers: inv7
func TestLedgerSerialisesOneKey(t *testing.T) {
	p := newPlay(t, 0, 0)
	_, err := p.ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
		if got := p.do("k", nil); got != agents.ErrInProgress.Error() {
			t.Errorf("do within do: %q", got)
		}
		if got := p.undo("k", nil); got != agents.ErrInProgress.Error() {
			t.Errorf("undo within do: %q", got)
		}
		if got := p.do("other", nil); got != "1" {
			t.Errorf("do of another key: %q", got)
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = p.ledger.Undo(t.Context(), "k", func(context.Context, []byte, bool) error {
		if got := p.undo("k", nil); got != agents.ErrInProgress.Error() {
			t.Errorf("undo within undo: %q", got)
		}
		if got := p.do("k", nil); got != agents.ErrGone.Error() {
			t.Errorf("do within undo: %q", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLedgerSurvivesPanic(t *testing.T) {
	p := newPlay(t, 0, 0)
	func() {
		defer func() { _ = recover() }()
		_, _ = p.ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) { panic("boom") })
	}()
	if got := p.do("k", nil); got != "1" {
		t.Errorf("do after a panic: %q", got)
	}
	func() {
		defer func() { _ = recover() }()
		_ = p.ledger.Undo(t.Context(), "k", func(context.Context, []byte, bool) error { panic("boom") })
	}()
	if got := p.undo("k", nil); got != "known 1" {
		t.Errorf("undo after a panic: %q", got)
	}
}

// covers: E16
func TestLedgerIsBounded(t *testing.T) {
	p := newPlay(t, time.Minute, 2)
	p.do("a", nil)
	p.now = p.now.Add(30 * time.Second)
	p.do("b", nil)
	if got := p.do("c", nil); got != agents.ErrLedgerFull.Error() {
		t.Errorf("third key of two: %q", got)
	}
	if got := p.undo("c", nil); got != agents.ErrLedgerFull.Error() {
		t.Errorf("undo of a third key: %q", got)
	}
	p.undo("a", nil) // moves a behind b
	p.now = p.now.Add(30 * time.Second)
	if got := p.do("a", nil); got != agents.ErrGone.Error() {
		t.Errorf("a was undone 30 s ago: %q", got)
	}
	p.now = p.now.Add(30 * time.Second)
	if n := p.ledger.Len(); n != 0 {
		t.Errorf("%d keys after their age", n)
	}
	if got := p.do("c", nil); got != "3" {
		t.Errorf("a key after room was made: %q", got)
	}
}

// Many goroutines do and undo the same keys: whatever the order, no effect
// stands once every key has a tombstone.
//
// covers: S40, inv7
func TestLedgerUnderRace(t *testing.T) {
	ledger := agents.NewMemoryLedger(func() core.Instant { return 1 }, 0, 0)
	keys := []string{"a", "b", "c"}
	standing := map[string]int{}
	var mu sync.Mutex
	add := func(key string, n int) {
		mu.Lock()
		defer mu.Unlock()
		if standing[key] += n; standing[key] < 0 || standing[key] > 1 {
			t.Errorf("key %s: %d effects", key, standing[key])
		}
	}
	undo := func(key string) error {
		return ledger.Undo(t.Context(), key, func(_ context.Context, _ []byte, known bool) error {
			if known {
				add(key, -1)
			}
			return nil
		})
	}
	var all sync.WaitGroup
	for i := range 64 {
		key := keys[i%len(keys)]
		all.Go(func() {
			_, _ = ledger.Do(t.Context(), key, func(context.Context) ([]byte, error) {
				add(key, 1)
				return nil, nil
			})
		})
		all.Go(func() {
			if i >= 32 {
				_ = undo(key)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if err := undo(key); err != nil {
			t.Error(err)
		}
		if standing[key] != 0 {
			t.Errorf("key %s: %d effects stand", key, standing[key])
		}
	}
}

// A key at work is not forgotten, however long ago it was idle: a do beside the second try of its undo takes no effect.
func TestLedgerKeepsWhatIsAtWork(t *testing.T) {
	p := newPlay(t, time.Minute, 2)
	p.do("k", nil)
	p.undo("k", errWork)
	p.now = p.now.Add(59 * time.Second)
	err := p.ledger.Undo(t.Context(), "k", func(context.Context, []byte, bool) error {
		p.now = p.now.Add(2 * time.Second)
		if got := p.do("k", nil); got != agents.ErrGone.Error() {
			t.Errorf("a do while its undo is at work: %q", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A ledger that was full takes a new key as soon as the oldest has its age, though no one asks how many there are.
func TestFullLedgerTakesKeysAgain(t *testing.T) {
	for _, call := range []func(*play) string{
		func(p *play) string { return p.do("new", nil) },
		func(p *play) string { return p.undo("new", nil) },
	} {
		p := newPlay(t, time.Minute, 1)
		p.do("old", nil)
		p.now = p.now.Add(time.Minute)
		if got := call(p); got == agents.ErrLedgerFull.Error() {
			t.Errorf("%q, though the only key is a minute old", got)
		}
	}
}
