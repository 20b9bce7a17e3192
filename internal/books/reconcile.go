package books

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
)

const (
	lookDefault  = 5 * time.Second
	againDefault = time.Minute
	easeDefault  = time.Second
	storeMax     = 30 * time.Second // of one write or small read of the state store
)

// Keeper is where results are kept.
type Keeper interface {
	operate.BooksStore
	operate.SettingStore
}

// Leader says whether this process is the one that compares.
type Leader interface{ Leads() bool }

// Config is how a reconciler works. Zero fields of time take their defaults.
type Config struct {
	Interval time.Duration // between the beginnings of two comparisons; 0: only when someone asks
	Window   time.Duration // how far back effects and tasks are compared; required
	Pages    int           // a second at most; required
	PagesMax int           // of one agent, and of processed tasks; 0: pagesMax
	Look     time.Duration // between two looks at whether someone asks
	Again    time.Duration // after a comparison that failed
	Ease     time.Duration // between two looks at an engine that is overloaded
	Now      func() time.Time
	// Overloaded reports whether the engine of this process has too much to do: then the comparison stands. nil: it never
	// has.
	Overloaded func() bool
	// Report takes the outcome of each comparison, nil when it came to its end; it must not block.
	Report func(error)
}

// Reconciler compares from time to time while this process leads, one comparison at a time.
type Reconciler struct {
	cfg    Config
	books  *Books
	keeper Keeper
	leader Leader
	pages  *rate.Limiter

	known  bool      // last is what the state store has
	failed time.Time // when the newest comparison failed; zero: it did not
	blind  bool      // the newest look at whether one is due failed

	mu   sync.Mutex
	last operate.BooksResult
	has  bool // this process leads, and last is the newest result
}

// NewReconciler makes one, which does nothing until Run. Error: a setting that cannot work.
func NewReconciler(cfg Config, books *Books, keeper Keeper, leader Leader) (*Reconciler, error) {
	if cfg.Window <= 0 || cfg.Pages <= 0 || cfg.Interval < 0 {
		return nil, fmt.Errorf("books: window %v, pages %d and interval %v, want more than 0, 1 or more, and 0 or more", cfg.Window, cfg.Pages, cfg.Interval)
	}
	cfg.Look, cfg.Again, cfg.Ease = cmp.Or(cfg.Look, lookDefault), cmp.Or(cfg.Again, againDefault), cmp.Or(cfg.Ease, easeDefault)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Overloaded == nil {
		cfg.Overloaded = func() bool { return false }
	}
	if cfg.Report == nil {
		cfg.Report = func(error) {}
	}
	return &Reconciler{cfg: cfg, books: books, keeper: keeper, leader: leader, pages: rate.NewLimiter(rate.Limit(cfg.Pages), 1)}, nil
}

// Last is the newest result, where this process leads; false: it does not, or there is none yet. It is safe for concurrent
// use.
func (r *Reconciler) Last() (operate.BooksResult, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.has
}

func (r *Reconciler) set(last operate.BooksResult, has bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.has = last, has
}

// Run compares until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	for {
		r.round(ctx)
		if pause.For(ctx, r.cfg.Look) != nil {
			return
		}
	}
}

// errNotLeading ends a comparison whose process leads no more: another begins it again.
var errNotLeading = errors.New("this node's supervisor leads no more")

// round looks once whether a comparison is due, and compares.
func (r *Reconciler) round(ctx context.Context) {
	if !r.leader.Leads() {
		if r.blind || !r.failed.IsZero() { // it is another's trouble now
			r.blind, r.failed = false, time.Time{}
			r.cfg.Report(nil)
		}
		r.known = false
		r.set(operate.BooksResult{}, false)
		return
	}
	due, asked, err := r.due(ctx)
	if err != nil { // the next look is soon: the trouble ends when the state store answers again
		if ctx.Err() == nil {
			r.blind = true
			r.cfg.Report(err)
		}
		return
	}
	if !due {
		if r.blind && r.failed.IsZero() {
			r.blind = false
			r.cfg.Report(nil)
		}
		return
	}
	r.blind = false
	err = r.compare(ctx, asked)
	switch {
	case ctx.Err() != nil || errors.Is(err, errNotLeading):
		return // another compares
	case err != nil:
		r.failed = r.cfg.Now()
		r.note(ctx, err)
	default:
		r.failed = time.Time{}
	}
	r.cfg.Report(err)
}

// due reads what was compared last and whether someone asks for another. asked is the id of the newest who does, or did.
func (r *Reconciler) due(ctx context.Context) (due bool, asked string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeMax)
	defer cancel()
	now := r.cfg.Now()
	if !r.failed.IsZero() && now.Sub(r.failed) < r.cfg.Again && !now.Before(r.failed) {
		return false, "", nil
	}
	if !r.known {
		last, err := r.keeper.LastBooks(ctx)
		if err != nil && !errors.Is(err, core.ErrNotFound) {
			return false, "", fmt.Errorf("books: %w", err)
		}
		r.known = true
		r.set(last, err == nil)
	}
	last, _ := r.Last()
	due = r.cfg.Interval > 0 && (last.Begun.IsZero() || now.Sub(last.Begun) >= r.cfg.Interval || now.Before(last.Begun))
	data, err := r.keeper.Setting(ctx, operate.SettingBooksAsked)
	if errors.Is(err, core.ErrNotFound) {
		return due, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("books: %w", err)
	}
	var request operate.BooksAsked
	if err := json.Unmarshal(data, &request); err != nil {
		return false, "", fmt.Errorf("setting %s: %w", operate.SettingBooksAsked, err)
	}
	return due || request.ID != last.Answers, request.ID, nil
}

// compare compares once and stores the result, which answers a request.
func (r *Reconciler) compare(ctx context.Context, asked string) error {
	last, _ := r.Last()
	o := Options{PagesMax: r.cfg.PagesMax, Pace: r.pace}
	for _, a := range last.Agents {
		if !a.None {
			o.Kept = append(o.Kept, a.Agent)
		}
	}
	var err error
	if o.Accepted, err = Accepted(ctx, r.keeper); err != nil {
		return err
	}
	report, err := r.books.Compare(ctx, r.cfg.Now().Add(-r.cfg.Window), o)
	if err != nil {
		return err
	}
	report.Answers = asked
	bounded, cancel := context.WithTimeout(ctx, storeMax)
	defer cancel()
	if err := r.keeper.PutBooks(bounded, report.BooksResult, report.Ghosts); err != nil {
		return err
	}
	r.set(report.BooksResult, true)
	return nil
}

// pace waits for the next page's turn: no more than so many a second, none while the engine is overloaded or this process
// does not lead.
func (r *Reconciler) pace(ctx context.Context) error {
	for {
		if !r.leader.Leads() {
			return errNotLeading
		}
		if !r.cfg.Overloaded() {
			return r.pages.Wait(ctx)
		}
		if err := pause.For(ctx, r.cfg.Ease); err != nil {
			return err
		}
	}
}

// note stores why the newest comparison failed, for people who look. Where that cannot be stored either, the node's log and
// alerts have it.
func (r *Reconciler) note(ctx context.Context, why error) {
	document, err := json.Marshal(operate.BooksFailed{At: r.failed.UTC(), Text: core.ShortText(why.Error(), reasonMax)})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeMax)
	defer cancel()
	_ = r.keeper.PutSetting(ctx, operate.SettingBooksFailed, document)
}

// Accepted reads the ghosts that operators accepted: see Options.
func Accepted(ctx context.Context, store operate.BooksStore) (func(*operate.Ghost) bool, error) {
	type one struct {
		agent, key string
		kind       operate.GhostKind
		times      int
	}
	all := map[one]bool{}
	for after := ""; len(all) < operate.GhostsAcceptedMax; {
		page, next, err := store.Ghosts(ctx, []operate.GhostStatus{operate.GhostAccepted}, operate.ListMax, after)
		if err != nil {
			return nil, err
		}
		for i := range page {
			g := &page[i]
			all[one{g.Agent, g.Key, g.Kind, g.Times}] = true
		}
		if after = next; next == "" {
			break
		}
	}
	return func(g *operate.Ghost) bool { return all[one{g.Agent, g.Key, g.Kind, g.Times}] }, nil
}
