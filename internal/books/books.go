package books

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Bounds of one comparison.
const (
	ghostsMax   = 1000 // that are named; all are counted
	pagesMax    = 100_000
	tasksOfPage = 500
	answerMax   = 10 * time.Second // of an agent, to one question
)

// Asker asks agents.
type Asker interface {
	// AskBooks asks one agent. Error: it keeps no books, did not answer in time, or not what can be read.
	AskBooks(ctx context.Context, agent string, q wire.BooksQuestion) (wire.BooksAnswer, error)
}

// Store is what is read of the state store.
type Store interface {
	Plans(ctx context.Context) ([]core.Plan, error)
	LoadIDs(ctx context.Context, partition int, ids []string) ([]core.Saved, error)
	List(ctx context.Context, f core.Filter) (core.Page, error)
}

// GhostKind says what is wrong between journal and service.
type GhostKind string

// The kinds of ghost.
const (
	GhostOfUndone GhostKind = "effect_of_undone" // an effect stands whose step was undone, or never done
	GhostMissing  GhostKind = "effect_missing"   // a task is processed, and the effect of a step of it does not stand
	GhostDoubled  GhostKind = "effect_doubled"   // an effect was made more than once
	GhostUnknown  GhostKind = "effect_of_none"   // an effect of a task that is not known
)

// Ghost is one thing that does not agree.
type Ghost struct {
	Kind  GhostKind  `json:"kind"`
	Agent string     `json:"agent"`
	Key   string     `json:"key"`
	Task  string     `json:"task"`
	Type  string     `json:"type,omitempty"`
	Step  string     `json:"step"`
	State core.State `json:"state,omitempty"` // of the task
	Text  string     `json:"text"`            // one sentence: what is wrong, and what mends it
}

// AgentBooks is what one agent answered.
type AgentBooks struct {
	Agent   string `json:"agent"`
	Effects int64  `json:"effects"`
	Error   string `json:"error,omitempty"` // why its books are not known; empty: they are
}

// Report is the outcome of a comparison.
type Report struct {
	Since   time.Time    `json:"since"`
	At      time.Time    `json:"at"`
	Agents  []AgentBooks `json:"agents"`
	Effects int64        `json:"effects"` // that were compared
	Tasks   int64        `json:"tasks"`   // processed ones whose effects were looked for
	Open    int64        `json:"open"`    // effects of tasks that have not ended: to be compared later
	Total   int64        `json:"total"`   // of ghosts
	Ghosts  []Ghost      `json:"ghosts"`  // the first of them
	Closed  bool         `json:"closed"`  // every agent answered, and there is no ghost
}

// Sentence is the report in one line.
func (r *Report) Sentence() string {
	silent := 0
	for _, a := range r.Agents {
		if a.Error != "" {
			silent++
		}
	}
	at := r.At.UTC().Format("15:04")
	switch {
	case r.Total > 0:
		return fmt.Sprintf("not closed at %s: %d of %d effects do not agree with the journal", at, r.Total, r.Effects)
	case silent > 0:
		return fmt.Sprintf("not known at %s: %d of %d agents answer no books; the others agree, %d effects, %d open", at, silent, len(r.Agents), r.Effects, r.Open)
	}
	return fmt.Sprintf("closed at %s: %d effects, %d open", at, r.Effects, r.Open)
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

func (b *Books) ask(ctx context.Context, agent string, q wire.BooksQuestion) (wire.BooksAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	return b.asker.AskBooks(ctx, agent, q)
}

// Compare compares effects and tasks since a time. Error: the state store could not be read; what an agent does not
// answer is in the report.
func (b *Books) Compare(ctx context.Context, since time.Time) (*Report, error) {
	plans, err := b.store.Plans(ctx)
	if unreadable := (core.UnreadablePlans)(nil); err != nil && !errors.As(err, &unreadable) {
		return nil, fmt.Errorf("books: %w", err)
	}
	c := &comparison{b: b, report: &Report{Since: since, Agents: []AgentBooks{}, Ghosts: []Ghost{}}, plans: map[planKey]*core.Plan{}, silent: map[string]bool{}}
	for i := range plans {
		c.plans[planKey{plans[i].Name, plans[i].Version}] = &plans[i]
	}
	for _, agent := range undoableAgents(plans) {
		if err := c.agent(ctx, agent); err != nil {
			return nil, err
		}
	}
	if err := c.processed(ctx); err != nil {
		return nil, err
	}
	r := c.report
	r.At = b.now()
	r.Closed = r.Total == 0 && len(c.silent) == 0
	return r, nil
}

type planKey struct {
	name    string
	version int64
}

// undoableAgents are the agents of steps that leave effects, in order.
func undoableAgents(plans []core.Plan) []string {
	var agents []string
	for i := range plans {
		for k := range plans[i].Steps {
			if s := &plans[i].Steps[k]; s.Undoable && !slices.Contains(agents, s.Agent) {
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
	report *Report
	plans  map[planKey]*core.Plan
	silent map[string]bool // agents whose books are not known
}

func (c *comparison) ghost(g Ghost) {
	c.report.Total++
	if len(c.report.Ghosts) < ghostsMax {
		c.report.Ghosts = append(c.report.Ghosts, g)
	}
}

// agent compares all effects of one agent since the time with their tasks.
func (c *comparison) agent(ctx context.Context, agent string) error {
	books := AgentBooks{Agent: agent}
	q := wire.BooksQuestion{Since: c.report.Since, Limit: tasksOfPage}
	for range pagesMax {
		page, err := c.b.ask(ctx, agent, q)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("books of agent %s: %w", agent, err)
			}
			books.Error, c.silent[agent] = err.Error(), true
			break
		}
		books.Effects += int64(len(page.Effects))
		if err := c.effects(ctx, agent, page.Effects, false); err != nil {
			return err
		}
		if page.Next == "" || page.Next == q.After {
			break
		}
		q.After = page.Next
	}
	c.report.Effects += books.Effects
	c.report.Agents = append(c.report.Agents, books)
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
		key, err := wire.ParseKey(e.Key)
		if err != nil {
			return fmt.Errorf("books of agent %s: %w", agent, err)
		}
		g, open, err := c.judge(agent, e, key, tasks[key.Task])
		switch {
		case err != nil:
			return err
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
	page, err := c.b.ask(ctx, agent, wire.BooksQuestion{Keys: suspects})
	if err != nil {
		return fmt.Errorf("books of agent %s, %d effects asked for again: %w", agent, len(suspects), err)
	}
	return c.effects(ctx, agent, page.Effects, true)
}

// tasks loads the tasks of effects, by id.
func (c *comparison) tasks(ctx context.Context, effects []wire.BooksEffect) (map[string]*core.Saved, error) {
	byPartition := map[int][]string{}
	seen := map[string]bool{}
	for _, e := range effects {
		key, err := wire.ParseKey(e.Key)
		if err != nil {
			return nil, fmt.Errorf("books: %w", err)
		}
		if !seen[key.Task] {
			seen[key.Task] = true
			p := c.b.partitionOf(key.Task, c.b.partitions)
			byPartition[p] = append(byPartition[p], key.Task)
		}
	}
	tasks := map[string]*core.Saved{}
	for p, ids := range byPartition {
		saved, err := c.b.store.LoadIDs(ctx, p, ids)
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
func (c *comparison) judge(agent string, e wire.BooksEffect, key wire.EffectKey, saved *core.Saved) (g *Ghost, open bool, err error) {
	g = &Ghost{Agent: agent, Key: e.Key, Task: key.Task, Step: key.Step}
	if saved == nil {
		g.Kind, g.Text = GhostUnknown, "the service has an effect of a task that is not known: it was forgotten, or never submitted here"
		return g, false, nil
	}
	g.Type, g.State = saved.Row.Type, saved.Row.State
	if e.Times > 1 {
		g.Kind, g.Text = GhostDoubled, fmt.Sprintf("the service made the effect %d times: it does not go by the key; take back what is too many by hand", e.Times)
		return g, false, nil
	}
	if len(saved.Journal) == 0 {
		if saved.Row.State == core.StateProcessed { // its detail is forgotten, and every step of it was done
			return nil, false, nil
		}
		g.Kind, g.Text = GhostOfUndone, "the task was undone, its journal is forgotten, and the effect stands: take it back by hand"
		return g, false, nil
	}
	plan := c.plans[planKey{saved.Row.Type, saved.Row.PlanVersion}]
	t, err := core.Replay(plan, saved)
	if err != nil {
		return nil, false, fmt.Errorf("books: task %s: %w", key.Task, err)
	}
	g.State = t.State
	if !t.State.Ended() {
		return nil, true, nil
	}
	if plan == nil {
		return nil, true, nil // what its steps left is not known without the plan
	}
	if key.Round == t.Round && c.stands(plan, t, key.Step) {
		return nil, false, nil
	}
	g.Kind, g.Text = GhostOfUndone, "the step was undone, or never done, and its effect stands: ask the agent to undo the key, or take it back by hand"
	return g, false, nil
}

// stands reports whether a step of an ended task may have an effect.
func (c *comparison) stands(plan *core.Plan, t *core.Task, step string) bool {
	i := slices.IndexFunc(plan.Steps, func(s core.Step) bool { return s.Name == step })
	return i >= 0 && (t.Steps[i].MayHaveEffect || t.Steps[i].Status == core.StepDone)
}

// processed looks for the effects of processed tasks at the agents that keep books.
func (c *comparison) processed(ctx context.Context) error {
	filter := core.Filter{State: core.StateProcessed, CreatedFrom: core.InstantOf(c.report.Since), Limit: tasksOfPage}
	for range pagesMax {
		page, err := c.b.store.List(ctx, filter)
		if err != nil {
			return fmt.Errorf("books: processed tasks: %w", err)
		}
		c.report.Tasks += int64(len(page.Tasks))
		if err := c.missing(ctx, page.Tasks); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		filter.After = page.Next
	}
	return nil
}

// missing asks each agent for the effects that processed tasks should have.
func (c *comparison) missing(ctx context.Context, tasks []core.View) error {
	wanted := map[string][]string{} // keys by agent
	of := map[string]*core.View{}
	for i := range tasks {
		v := &tasks[i]
		plan := c.plans[planKey{v.Type, v.PlanVersion}]
		if plan == nil {
			continue
		}
		for k := range plan.Steps {
			if s := &plan.Steps[k]; s.Undoable && !c.silent[s.Agent] {
				key := core.Key(v.ID, s.Name, v.Round)
				wanted[s.Agent], of[key] = append(wanted[s.Agent], key), v
			}
		}
	}
	for _, agent := range slices.Sorted(maps.Keys(wanted)) {
		for keys := range slices.Chunk(wanted[agent], wire.BooksMax) {
			if err := c.missingAt(ctx, agent, keys, of); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *comparison) missingAt(ctx context.Context, agent string, keys []string, of map[string]*core.View) error {
	page, err := c.b.ask(ctx, agent, wire.BooksQuestion{Keys: keys})
	if err != nil {
		return fmt.Errorf("books of agent %s: effects of %d processed tasks: %w", agent, len(keys), err)
	}
	there := map[string]bool{}
	for _, e := range page.Effects {
		there[e.Key] = true
	}
	for _, text := range keys {
		if there[text] {
			continue
		}
		key, err := wire.ParseKey(text)
		if err != nil {
			return fmt.Errorf("books: %w", err)
		}
		v := of[text]
		still, err := c.stillWanted(ctx, v, key)
		if err != nil {
			return err
		}
		if still {
			c.ghost(Ghost{Kind: GhostMissing, Agent: agent, Key: text, Task: v.ID, Type: v.Type, Step: key.Step, State: v.State,
				Text: "the task is processed and the service has no effect of the step: it answered done without doing it, or lost it; do it by hand, or undo the task"})
		}
	}
	return nil
}

// stillWanted looks at a task again: it may have been undone since, or an operator may have accepted the step without an
// effect.
func (c *comparison) stillWanted(ctx context.Context, v *core.View, key wire.EffectKey) (bool, error) {
	saved, err := c.b.store.LoadIDs(ctx, v.Partition, []string{v.ID})
	if err != nil {
		return false, fmt.Errorf("books: task %s: %w", v.ID, err)
	}
	if len(saved) == 0 || saved[0].Row.State != core.StateProcessed {
		return false, nil
	}
	plan := c.plans[planKey{v.Type, v.PlanVersion}]
	for i := range saved[0].Journal {
		r := &saved[0].Journal[i]
		byHand := r.Kind == core.KindAccepted && plan.Steps[r.Step].Name == key.Step || r.Kind == core.KindResolved
		if byHand && r.Round == key.Round {
			return false, nil
		}
	}
	return true, nil
}
