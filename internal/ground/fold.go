package ground

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// foldsMax bounds the messages that a folding handler tells apart; a line with any other is never held back.
const foldsMax = 256

// Folding is a [slog.Handler] that writes each message at most once per lineGap, however often it comes. What came in
// between is one line at the end of the gap: the last one, with how many it stands for. Debugging lines pass.
//
// Parts that report their troubles do not need it. It is the bound for what others say: each line of a storm, such as a
// thousand undecodable messages a second, is one more reason for the next.
type Folding struct {
	next  slog.Handler
	state *folds
}

type folds struct {
	mu     sync.Mutex
	seen   map[string]*fold
	closed bool
}

// fold is one message: when it was last written, and the newest line that was held back since.
type fold struct {
	last  time.Time
	timer *time.Timer // nil: nothing is held
	held  slog.Record
	to    slog.Handler
	times int
}

// NewFolding makes a folding handler in front of another.
func NewFolding(next slog.Handler) *Folding {
	return &Folding{next: next, state: &folds{seen: map[string]*fold{}}}
}

// Enabled implements slog.Handler.
func (f *Folding) Enabled(ctx context.Context, level slog.Level) bool {
	return f.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (f *Folding) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Folding{next: f.next.WithAttrs(attrs), state: f.state}
}

// WithGroup implements slog.Handler.
func (f *Folding) WithGroup(name string) slog.Handler {
	return &Folding{next: f.next.WithGroup(name), state: f.state}
}

// Handle implements slog.Handler.
func (f *Folding) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo || !f.state.hold(f.next, r) {
		return f.next.Handle(ctx, r)
	}
	return nil
}

// hold keeps a line back if its message was written less than a gap ago.
func (s *folds) hold(to slog.Handler, r slog.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	seen := s.seen[r.Message]
	if seen == nil || seen.timer == nil && now.Sub(seen.last) >= lineGap {
		if seen == nil && len(s.seen) >= foldsMax {
			s.forget(now)
		}
		if len(s.seen) < foldsMax {
			s.seen[r.Message] = &fold{last: now}
		}
		return false
	}
	if s.closed {
		return false
	}
	seen.held, seen.to = r.Clone(), to
	seen.times++
	if seen.timer == nil {
		seen.timer = time.AfterFunc(lineGap-now.Sub(seen.last), func() { s.write(r.Message) })
	}
	return true
}

// forget drops messages that were not written lately.
func (s *folds) forget(now time.Time) {
	for text, f := range s.seen {
		if f.timer == nil && now.Sub(f.last) >= lineGap {
			delete(s.seen, text)
		}
	}
}

// write writes what was held back of a message.
func (s *folds) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen[text]
	if seen == nil || seen.timer == nil {
		return
	}
	if seen.times > 1 {
		seen.held.AddAttrs(slog.Int("times", seen.times))
	}
	seen.held.Time = time.Now() // lines stand in the order of their times
	// An error of the log has no one to be told to.
	_ = seen.to.Handle(context.Background(), seen.held)
	*seen = fold{last: time.Now()}
}

// Close writes what is held back, and holds nothing from then on.
func (f *Folding) Close() {
	s := f.state
	s.mu.Lock()
	s.closed = true
	var texts []string
	for text, seen := range s.seen {
		if seen.timer != nil && seen.timer.Stop() {
			texts = append(texts, text)
		}
	}
	s.mu.Unlock()
	for _, text := range texts {
		s.write(text)
	}
}
