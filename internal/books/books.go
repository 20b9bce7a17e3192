package books

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
)

// Bounds of one comparison.
const (
	pagesMax    = 100_000 // of one agent, and of ended tasks, unless Options says otherwise
	tasksOfPage = 500
	answerMax   = 10 * time.Second // of an agent, to one question
	reasonMax   = 300              // bytes of why an agent's books are not known
)

// Asker asks agents.
type Asker interface {
	// AskBooks asks one agent. Error: wire.ErrNoBooks where it keeps none; it did not answer in time, or not what can be
	// read.
	AskBooks(ctx context.Context, agent string, q wire.BooksQuestion) (wire.BooksAnswer, error)
}

// Store is what is read of the state store.
type Store interface {
	Plans(ctx context.Context) ([]core.Plan, error)
	SavedIDs(ctx context.Context, partition int, ids []string) ([]core.Saved, error)
	Ended(ctx context.Context, since core.Instant, limit int, after string) (core.Page, error)
}

// Report is the outcome of a comparison, with the first of its ghosts.
type Report struct {
	operate.BooksResult
	Ghosts []operate.Ghost `json:"ghosts"`
}

// Books compares. It is safe for concurrent use.
type Books struct {
	store       Store
	asker       Asker
	partitions  int
	partitionOf func(id string, partitions int) int
	now         func() time.Time
}

// New makes it. now may be nil: the machine's clock.
func New(store Store, asker Asker, partitions int, partitionOf func(string, int) int, now func() time.Time) *Books {
	if now == nil {
		now = time.Now
	}
	return &Books{store: store, asker: asker, partitions: partitions, partitionOf: partitionOf, now: now}
}

// Options are of one comparison. The zero value has no limit but pagesMax, and nothing is accepted.
type Options struct {
	PagesMax int // of one agent, and of ended tasks; 0: pagesMax
	// Pace is called before each page: it may wait, and its error ends the comparison. nil: pages follow one another.
	Pace func(ctx context.Context) error
	// Accepted reports whether an operator has accepted a ghost. nil: none.
	Accepted func(g *operate.Ghost) bool
	// Kept are the agents that kept books before: where one is not there, its books are not known. Of any other it is
	// taken that it keeps none.
	Kept []string
}

func (b *Books) ask(ctx context.Context, agent string, q wire.BooksQuestion) (wire.BooksAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	return b.asker.AskBooks(ctx, agent, q)
}

// Compare compares effects and tasks since a time. Error: the state store could not be read, or Pace ended it; what an
// agent does not answer is in the report.
func (b *Books) Compare(ctx context.Context, since time.Time, o Options) (*Report, error) {
	if o.PagesMax == 0 {
		o.PagesMax = pagesMax
	}
	begun := b.now().UTC()
	plans, err := b.store.Plans(ctx)
	if unreadable := (core.UnreadablePlans)(nil); err != nil && !errors.As(err, &unreadable) {
		return nil, fmt.Errorf("books: %w", err)
	}
	c := &comparison{b: b, o: o, plans: core.PlansByKey(plans), deaf: map[string]bool{}, named: map[[2]string]bool{}, report: &Report{Ghosts: []operate.Ghost{}}}
	c.report.BooksResult = operate.BooksResult{Since: since.UTC(), Begun: begun, Agents: []operate.AgentBooks{}, Kinds: map[operate.GhostKind]int64{}}
	agents := undoableAgents(plans)
	for _, agent := range agents {
		if err := c.agent(ctx, agent); err != nil {
			return nil, err
		}
	}
	if len(c.deaf) < len(agents) {
		if err := c.ended(ctx); err != nil {
			return nil, err
		}
	}
	r := c.report
	r.At = b.now().UTC()
	r.Closed = r.Kept() > 0 && r.Total == 0 && r.Silent() == 0 && !r.Cut
	return r, nil
}

// undoableAgents are the agents of steps that leave effects, in order.
func undoableAgents(plans []core.Plan) []string {
	var agents []string
	for i := range plans {
		for k := range plans[i].Steps {
			if s := &plans[i].Steps[k]; s.Kind == core.CallStep && s.Undoable && !slices.Contains(agents, s.Agent) {
				agents = append(agents, s.Agent)
			}
		}
	}
	slices.Sort(agents)
	return agents
}

// comparison is one under way.
type comparison struct {
	b      *Books
	o      Options
	report *Report
	plans  map[core.PlanKey]*core.Plan
	deaf   map[string]bool    // agents that keep no books, or do not answer for them
	named  map[[2]string]bool // agents and keys of the report's ghosts
}

// agentError is what is wrong with one agent's books. The others go on.
type agentError struct{ err error }

// Error is the reason.
func (e *agentError) Error() string { return e.err.Error() }

// Unwrap is the reason.
func (e *agentError) Unwrap() error { return e.err }

func (c *comparison) pace(ctx context.Context) error {
	if c.o.Pace == nil {
		return ctx.Err()
	}
	return c.o.Pace(ctx)
}

// ask asks an agent. Error: *agentError, or that ctx has ended.
func (c *comparison) ask(ctx context.Context, agent string, q wire.BooksQuestion) (wire.BooksAnswer, error) {
	answer, err := c.b.ask(ctx, agent, q)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return answer, fmt.Errorf("books of agent %s: %w", agent, err)
	}
	return answer, &agentError{err}
}

func (c *comparison) ghost(g operate.Ghost) {
	if c.o.Accepted != nil && c.o.Accepted(&g) {
		c.report.Accepted++
		return
	}
	if c.named[[2]string{g.Agent, g.Key}] {
		return
	}
	g.Status = operate.GhostOpen
	c.report.Total++
	c.report.Kinds[g.Kind]++
	if len(c.report.Ghosts) < operate.GhostsMax {
		c.report.Ghosts, c.named[[2]string{g.Agent, g.Key}] = append(c.report.Ghosts, g), true
	}
}

// agent compares all effects of one agent since the time with their tasks.
func (c *comparison) agent(ctx context.Context, agent string) error {
	books := operate.AgentBooks{Agent: agent}
	err := c.pages(ctx, &books)
	if wrong, ok := errors.AsType[*agentError](err); ok {
		c.deaf[agent] = true
		if books.None = errors.Is(err, wire.ErrNoBooks) && books.Effects == 0 && !slices.Contains(c.o.Kept, agent); !books.None {
			books.Error = core.ShortText(wrong.Error(), reasonMax)
		}
		err = nil
	}
	c.report.Effects += books.Effects
	c.report.Agents = append(c.report.Agents, books)
	return err
}

// keyOf reads the key of an effect, which an agent may have made up.
func keyOf(text string) (wire.EffectKey, error) {
	key, err := wire.ParseKey(text)
	if err == nil {
		err = core.CheckName("step", key.Step)
	}
	if err == nil {
		if err = core.CheckTaskID(key.Task); err != nil {
			err = fmt.Errorf("task of key %s: %w", core.QuoteShort(text), err)
		}
	}
	if err != nil {
		return key, &agentError{err}
	}
	return key, nil
}

func (c *comparison) pages(ctx context.Context, books *operate.AgentBooks) error {
	q := wire.BooksQuestion{Since: c.report.Since, Limit: tasksOfPage}
	for range c.o.PagesMax {
		if err := c.pace(ctx); err != nil {
			return err
		}
		page, err := c.ask(ctx, books.Agent, q)
		if err != nil {
			return err
		}
		books.Effects += int64(len(page.Effects))
		if err := c.effects(ctx, books.Agent, page.Effects, false); err != nil {
			return err
		}
		switch page.Next {
		case "":
			return nil
		case q.After:
			return &agentError{fmt.Errorf("its next page after %s is the same page: the last one has no next", core.QuoteShort(q.After))}
		}
		q.After = page.Next
	}
	c.report.Cut = true
	return nil
}

// effects judges effects by their tasks. What does not agree is looked at again once: the service may have changed
// between its answer and the reading of the task. again: this is that second look.
func (c *comparison) effects(ctx context.Context, agent string, effects []wire.BooksEffect, again bool) error {
	tasks, err := c.tasks(ctx, effects)
	if err != nil {
		return err
	}
	var suspects []string
	for _, e := range effects {
		key, err := keyOf(e.Key)
		if err != nil {
			return err
		}
		g, open := c.judge(agent, e, key, tasks[key.Task])
		switch {
		case open && !again:
			c.report.Open++
		case g != nil && again:
			c.ghost(*g)
		case g != nil:
			suspects = append(suspects, e.Key)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	page, err := c.ask(ctx, agent, wire.BooksQuestion{Keys: suspects})
	if err != nil {
		return err
	}
	return c.effects(ctx, agent, page.Effects, true)
}

// tasks loads the tasks of effects, by id.
func (c *comparison) tasks(ctx context.Context, effects []wire.BooksEffect) (map[string]*core.Saved, error) {
	byPartition := map[int][]string{}
	seen := map[string]bool{}
	for _, e := range effects {
		key, err := keyOf(e.Key)
		if err != nil {
			return nil, err
		}
		if !seen[key.Task] {
			seen[key.Task] = true
			p := c.b.partitionOf(key.Task, c.b.partitions)
			byPartition[p] = append(byPartition[p], key.Task)
		}
	}
	tasks := map[string]*core.Saved{}
	for p, ids := range byPartition {
		saved, err := c.b.store.SavedIDs(ctx, p, ids)
		if err != nil {
			return nil, fmt.Errorf("books: tasks of partition %d: %w", p, err)
		}
		for i := range saved {
			tasks[saved[i].Row.ID] = &saved[i]
		}
	}
	return tasks, nil
}

// judge says what is wrong with an effect; nil: nothing. open: its task has not ended.
func (c *comparison) judge(agent string, e wire.BooksEffect, key wire.EffectKey, saved *core.Saved) (g *operate.Ghost, open bool) {
	g = &operate.Ghost{Agent: agent, Key: e.Key, Task: key.Task, Step: key.Step, Times: e.Times, Repairs: operate.RepairsOf(false)}
	if !e.At.IsZero() {
		g.Made = e.At.UTC()
	}
	if saved == nil {
		g.Kind, g.Text = operate.GhostUnknown, say.Of("ghost.unknown")
		return g, false
	}
	g.Type, g.State = saved.Row.Type, saved.Row.State
	if saved.Err == nil && len(saved.Journal) == 0 {
		switch {
		case e.Times > 1:
			g.Kind, g.Text = operate.GhostDoubled, say.Of("ghost.doubled", "n", e.Times)
		case saved.Row.State == core.StateProcessed && key.Round != saved.Row.Round: // all of an earlier round was undone
			g.Kind, g.Text = operate.GhostOfUndone, say.Of("ghost.undone")
		case saved.Row.State == core.StateProcessed: // its detail is forgotten, and every step of it was done
			return nil, false
		default:
			g.Kind, g.Text = operate.GhostOfUndone, say.Of("ghost.forgotten")
		}
		return g, false
	}
	plan := c.plans[core.PlanKey{Name: saved.Row.Type, Version: saved.Row.PlanVersion}]
	t, err := core.Replay(plan, saved)
	if err != nil { // of one task: the others are compared all the same
		g.Kind, g.Text = operate.GhostUnknown, core.ShortText(say.Of("ghost.unreadable", "error", err), reasonMax)
		return g, false
	}
	g.State, g.Seq = t.State, t.Seq
	g.Repairs = operate.RepairsOf(undoable(plan, t, key))
	switch {
	case e.Times > 1:
		g.Kind, g.Text = operate.GhostDoubled, say.Of("ghost.doubled", "n", e.Times)
		return g, false
	case !t.State.Ended():
		return nil, true
	case plan == nil:
		return nil, true // what its steps left is not known without the plan
	case key.Round == t.Round && stands(plan, t, key.Step):
		return nil, false
	}
	g.Kind, g.Text = operate.GhostOfUndone, say.Of("ghost.undone")
	return g, false
}

// stands reports whether a step of an ended task may have an effect.
func stands(plan *core.Plan, t *core.Task, step string) bool {
	i := plan.StepIndex(step)
	return i >= 0 && (t.Steps[i].Effect.Possible() || t.Steps[i].Status == core.StepDone)
}

// undoable reports whether the task's owner would undo the effect: of a processed task with all else, of an undone one
// alone.
func undoable(plan *core.Plan, t *core.Task, key wire.EffectKey) bool {
	if plan == nil || key.Round != t.Round || t.Steps == nil {
		return false
	}
	i := plan.StepIndex(key.Step)
	return i >= 0 && plan.Steps[i].Undoable && (t.State == core.StateProcessed || t.State == core.StateUndone)
}

// ended looks at the agents that keep books for the effects of tasks that ended since the time, however long they took.
func (c *comparison) ended(ctx context.Context) error {
	after := ""
	for range c.o.PagesMax {
		if err := c.pace(ctx); err != nil {
			return err
		}
		page, err := c.b.store.Ended(ctx, core.InstantOf(c.report.Since), tasksOfPage, after)
		if err != nil {
			return fmt.Errorf("books: %w", err)
		}
		if err := c.look(ctx, page.Tasks); err != nil {
			return err
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
	c.report.Cut = true
	return nil
}

// look asks each agent for the effects that processed tasks should have, and for those that undone ones should not have: its
// own pages do not reach back to all of a task that began before the time.
func (c *comparison) look(ctx context.Context, tasks []core.View) error {
	keys := map[string][]string{} // by agent
	of := map[string]*core.View{}
	for i := range tasks {
		v := &tasks[i]
		processed := v.State == core.StateProcessed
		if processed {
			c.report.Tasks++
		}
		plan := c.plans[core.PlanKey{Name: v.Type, Version: v.PlanVersion}]
		if plan == nil || !processed && (v.State != core.StateUndone || !v.CreatedAt.Time().Before(c.report.Since)) {
			continue
		}
		for k := range plan.Steps {
			if s := &plan.Steps[k]; s.Kind == core.CallStep && s.Undoable && !c.deaf[s.Agent] {
				key := core.Key(v.ID, s.Name, v.Round)
				keys[s.Agent], of[key] = append(keys[s.Agent], key), v
			}
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(keys)) {
		for some := range slices.Chunk(keys[agent], wire.BooksMax) {
			err := c.lookAt(ctx, agent, some, of)
			if wrong, ok := errors.AsType[*agentError](err); ok {
				c.fellSilent(agent, wrong)
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// fellSilent notes that an agent answers no more.
func (c *comparison) fellSilent(agent string, why *agentError) {
	c.deaf[agent] = true
	for i := range c.report.Agents {
		if a := &c.report.Agents[i]; a.Agent == agent {
			a.Error = core.ShortText(why.Error(), reasonMax)
		}
	}
}

func (c *comparison) lookAt(ctx context.Context, agent string, keys []string, of map[string]*core.View) error {
	page, err := c.ask(ctx, agent, wire.BooksQuestion{Keys: keys})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	var left []wire.BooksEffect
	for _, e := range page.Effects {
		there[e.Key] = true
		if v := of[e.Key]; v != nil && v.State == core.StateUndone && e.At.Before(c.report.Since) { // later ones were on its pages
			left = append(left, e)
		}
	}
	if err := c.effects(ctx, agent, left, false); err != nil {
		return err
	}
	for _, text := range keys {
		if there[text] || of[text].State != core.StateProcessed {
			continue
		}
		key, err := wire.ParseKey(text)
		if err != nil {
			return fmt.Errorf("books: %w", err)
		}
		v := of[text]
		saved, err := c.stillWanted(ctx, v, key)
		if err != nil {
			return err
		}
		if saved == nil {
			continue
		}
		g := operate.Ghost{Kind: operate.GhostMissing, Agent: agent, Key: text, Task: v.ID, Type: v.Type, Step: key.Step, State: v.State, Repairs: operate.RepairsOf(len(saved.Journal) > 0), Text: say.Of("ghost.missing")}
		if n := len(saved.Journal); n > 0 {
			g.Seq = saved.Journal[n-1].Seq
		}
		c.ghost(g)
	}
	return nil
}

// leftOut reports whether a processed task went on without a step: its condition was false, or it is optional and failed.
// Once the journal is forgotten it counts as left out if it may have been; where it cannot be read it does not, so that a
// person looks at it.
func leftOut(plan *core.Plan, saved *core.Saved, step string) bool {
	i := plan.StepIndex(step)
	if i < 0 || plan.Steps[i].When == "" && plan.Steps[i].OnExhausted != core.PolicySkip {
		return false
	}
	if saved.Err == nil && len(saved.Journal) == 0 {
		return true
	}
	t, err := core.Replay(plan, saved)
	return err == nil && t.Steps[i].Status != core.StepDone
}

// stillWanted looks at a task again: it may have been undone since, the step may have been left out, or an operator may
// have accepted it without an effect; then it is nil.
func (c *comparison) stillWanted(ctx context.Context, v *core.View, key wire.EffectKey) (*core.Saved, error) {
	saved, err := c.b.store.SavedIDs(ctx, v.Partition, []string{v.ID})
	if err != nil {
		return nil, fmt.Errorf("books: task %s: %w", v.ID, err)
	}
	if len(saved) == 0 || saved[0].Row.State != core.StateProcessed {
		return nil, nil
	}
	plan := c.plans[core.PlanKey{Name: v.Type, Version: v.PlanVersion}]
	if leftOut(plan, &saved[0], key.Step) {
		return nil, nil
	}
	for i := range saved[0].Journal {
		r := &saved[0].Journal[i]
		byHand := r.Kind == core.KindAccepted && plan.Steps[r.Step].Name == key.Step || r.Kind == core.KindResolved
		if byHand && r.Round == key.Round {
			return nil, nil
		}
	}
	return &saved[0], nil
}
