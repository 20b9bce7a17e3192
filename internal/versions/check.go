package versions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// Limits of a check.
const (
	pageMax = 500       // tasks of one page
	lastMax = 1_000_000 // ended tasks of one check
	chunk   = 100       // tasks with their journals in memory at a time
)

// Store is what a check reads.
type Store interface {
	// List returns one page of tasks without their steps, newest first.
	List(ctx context.Context, f core.Filter) (core.Page, error)
	// Saved returns rows with journals.
	Saved(ctx context.Context, partition int, numbers []int64) ([]core.Saved, error)
	// Plans returns the plans that this binary can read, beside core.UnreadablePlans where there are others.
	Plans(ctx context.Context) ([]core.Plan, error)
}

// Checker checks a version against the tasks of its type, page by page. It is safe for concurrent use.
type Checker struct {
	Store    Store
	Evaluate Evaluate // may be nil
	// Fits says whether an input fits the input schema of a plan, Children makes the inputs of an each's children of its
	// elements; nil: what calls the plan is not looked at, or of an each not known.
	Fits     func(p *core.Plan, input []byte) error
	Children func(p *core.Plan, t *core.Task, step int) func(index int, element []byte) ([]byte, error)
}

// Finding is a task that comes out differently, or of which that cannot be said; of one in flight also whether it may be
// moved to the version.
type Finding struct {
	ID      string     `json:"id"`
	State   core.State `json:"state"`
	Version int64      `json:"version"` // its own
	Rows    int64      `json:"rows"`    // of its journal
	Verdict
	Stays string `json:"stays,omitempty"` // of a task in flight: why it may not be moved; empty: it may
}

// CheckPage is one page of a check. Its counts are of the page.
type CheckPage struct {
	InFlight  int       `json:"in_flight"` // tasks in flight or in error that were played
	Ended     int       `json:"ended"`     // ended tasks that were played
	Same      int       `json:"same"`
	Different int       `json:"different"`
	Unknown   int       `json:"unknown"`
	Movable   int       `json:"movable"` // of those in flight: that may be moved to the version
	Findings  []Finding `json:"findings"`
	Callers   []Caller  `json:"callers,omitempty" doc:"on the first page: the steps whose next children are of the version"`
	Next      string    `json:"next,omitempty"` // cursor of the next page; empty: this was the last
}

// inFlight are the states of tasks that may still do something by their plan, in the order in which a check reads them.
var inFlight = []core.State{core.StateProcessing, core.StateUndoing, core.StatePending, core.StateError}

// ErrCursor is wrapped by the error about a cursor that no page told.
var ErrCursor = errors.New("after is no cursor of a check")

// cursor is where a check goes on: in which state's list, or with how many ended tasks left, and after which page of it.
type cursor struct {
	state int // of inFlight; len(inFlight): the ended ones
	left  int // ended tasks still to play
	after string
}

func (c cursor) String() string { return fmt.Sprintf("%d.%d.%s", c.state, c.left, c.after) }

func parseCursor(text string, last int) (c cursor, err error) {
	if text == "" {
		return cursor{left: last}, nil
	}
	state, rest, _ := strings.Cut(text, ".")
	left, after, ok := strings.Cut(rest, ".")
	c.after = after
	if c.state, err = strconv.Atoi(state); err == nil {
		c.left, err = strconv.Atoi(left)
	}
	if err != nil || !ok || c.state < 0 || c.state > len(inFlight) || c.left < 0 || c.left > lastMax {
		return c, fmt.Errorf("%w: %s", ErrCursor, core.QuoteShort(text))
	}
	return c, nil
}

// Page plays one page: first every task in flight, then the newest last ones that have ended. A task that changes meanwhile
// is played as it was read. all has a finding for each task; else those that come out the same have none. after is the cursor of the page before; empty: the first.
func (c *Checker) Page(ctx context.Context, to *core.Plan, last int, all bool, after string) (CheckPage, error) {
	page := CheckPage{Findings: []Finding{}}
	if last < 0 || last > lastMax {
		return page, fmt.Errorf("last is %d, want 0 to %d", last, lastMax)
	}
	at, err := parseCursor(after, last)
	if err != nil {
		return page, err
	}
	if after == "" {
		if page.Callers, err = c.Callers(ctx, to); err != nil {
			return page, err
		}
	}
	plans, err := c.plans(ctx, to.Name)
	if err != nil {
		return page, err
	}
	f := core.Filter{Type: to.Name, Limit: pageMax, After: at.after}
	ended := at.state == len(inFlight)
	if !ended {
		f.State = inFlight[at.state]
	}
	list, err := c.Store.List(ctx, f)
	if err != nil {
		return page, fmt.Errorf("tasks of type %s: %w", to.Name, err)
	}
	tasks := list.Tasks
	if ended {
		tasks = slices.DeleteFunc(tasks, func(v core.View) bool { return v.State != core.StateProcessed && v.State != core.StateUndone })
		tasks = tasks[:min(len(tasks), at.left)]
		at.left -= len(tasks)
	}
	if err := c.playAll(ctx, to, plans, tasks, !ended, all, &page); err != nil {
		return page, err
	}
	if at.after = list.Next; at.after == "" {
		at.state++
	}
	if at.state < len(inFlight) || at.state == len(inFlight) && at.left > 0 {
		page.Next = at.String()
	}
	return page, nil
}

func (c *Checker) plans(ctx context.Context, name string) (map[int64]*core.Plan, error) {
	all, err := c.Store.Plans(ctx)
	if _, newer := errors.AsType[core.UnreadablePlans](err); err != nil && !newer {
		return nil, fmt.Errorf("plans: %w", err)
	}
	byVersion := map[int64]*core.Plan{}
	for i := range all {
		if all[i].Name == name {
			byVersion[all[i].Version] = &all[i]
		}
	}
	return byVersion, nil
}

// playAll plays tasks, few at a time with their journals.
func (c *Checker) playAll(ctx context.Context, to *core.Plan, plans map[int64]*core.Plan, tasks []core.View, active, all bool, page *CheckPage) error {
	err := c.read(ctx, tasks, func(saved *core.Saved) {
		page.add(c.one(to, plans[saved.Row.PlanVersion], saved, active), active, all)
	})
	slices.SortFunc(page.Findings, func(a, b Finding) int { return strings.Compare(a.ID, b.ID) })
	return err
}

// read reads tasks with their journals, few at a time.
func (c *Checker) read(ctx context.Context, tasks []core.View, each func(*core.Saved)) error {
	byPartition := map[int][]int64{}
	for i := range tasks {
		byPartition[tasks[i].Partition] = append(byPartition[tasks[i].Partition], tasks[i].Number)
	}
	for partition, numbers := range byPartition {
		for some := range slices.Chunk(numbers, chunk) {
			saved, err := c.Store.Saved(ctx, partition, some)
			if err != nil {
				return fmt.Errorf("journals of %d tasks of partition %d: %w", len(some), partition, err)
			}
			for i := range saved {
				each(&saved[i])
			}
		}
	}
	return nil
}

// one plays one task.
func (c *Checker) one(to, old *core.Plan, saved *core.Saved, active bool) Finding {
	f := Finding{ID: saved.Row.ID, State: saved.Row.State, Version: saved.Row.PlanVersion, Rows: int64(len(saved.Journal))}
	if old == nil {
		f.Verdict = Verdict{Fate: fateUnknown, Why: "its own version is not stored, or this node cannot read it"}
		f.Stays = f.Why
		return f
	}
	if saved.Err != nil {
		f.Verdict = Verdict{Fate: fateUnknown, Why: "it cannot be read: " + saved.Err.Error()}
		f.Stays = f.Why
		return f
	}
	f.Verdict = play(old, to, saved, c.Evaluate)
	if !active {
		return f
	}
	t, err := core.Replay(old, saved)
	if err == nil {
		err = core.Movable(old, to, t)
	}
	if err != nil {
		f.Stays = err.Error()
	}
	return f
}

func (p *CheckPage) add(f Finding, active, all bool) {
	if active {
		p.InFlight++
		if f.Stays == "" {
			p.Movable++
		}
	} else {
		p.Ended++
	}
	switch f.Fate {
	case fateSame:
		if p.Same++; !all {
			return
		}
	case fateDifferent:
		p.Different++
	default:
		p.Unknown++
	}
	p.Findings = append(p.Findings, f)
}
