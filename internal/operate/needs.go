package operate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// NeedKind says what wants an operator.
type NeedKind string

// What may want an operator. The causes, which hold tasks up, come before what has come of them.
const (
	NeedTrouble    NeedKind = "trouble"    // a condition of this node does not hold
	NeedAgents     NeedKind = "agents"     // that are gone, with tasks that wait for them
	NeedBreakers   NeedKind = "breakers"   // that are not closed
	NeedPauses     NeedKind = "pauses"     // in force
	NeedLimits     NeedKind = "limits"     // that tasks wait at
	NeedErrors     NeedKind = "errors"     // tasks in error, by failure group
	NeedDeadlines  NeedKind = "deadlines"  // tasks near theirs
	NeedAnswers    NeedKind = "answers"    // tasks that wait for one
	NeedOperations NeedKind = "operations" // braked or paused
)

// NeedLinesMax is how many lines a need has at most.
const NeedLinesMax = 5

// Need is one kind of thing that wants an operator, with those of it that concern the most tasks.
type Need struct {
	Kind      NeedKind   `json:"kind" enum:"trouble,agents,breakers,pauses,limits,errors,deadlines,answers,operations"`
	Title     string     `json:"title" doc:"in words"`
	Tasks     Count      `json:"tasks" doc:"that it holds up or is about: those of lines and more_tasks together; of several pauses those of the largest at least, as two may hold one task"`
	Lines     []NeedLine `json:"lines" doc:"those that concern the most tasks first, single tasks by their time; 5 at most"`
	More      Count      `json:"more" doc:"of them that are left out"`
	MoreTasks Count      `json:"more_tasks" doc:"that those concern"`
	At        time.Time  `json:"at" doc:"when it was looked at"`
}

// NeedLine is one of what a need is about.
type NeedLine struct {
	ID    string    `json:"id" doc:"of an agent its name, of a task type/id"`
	Text  string    `json:"text"`
	Tasks Count     `json:"tasks"`
	Note  string    `json:"note,omitempty" doc:"what the time says"`
	Time  time.Time `json:"time,omitzero"`
}

// Cause reports whether it holds tasks up, and is no consequence of something else.
func (n *Need) Cause() bool {
	switch n.Kind {
	case NeedTrouble, NeedAgents, NeedBreakers, NeedPauses, NeedLimits:
		return true
	case NeedErrors, NeedDeadlines, NeedAnswers, NeedOperations:
	}
	return false
}

// Single reports whether each of its lines is one task.
func (n *Need) Single() bool { return n.Kind == NeedDeadlines || n.Kind == NeedAnswers }

// Counted reports whether its lines are about numbers of tasks. Beside one that has some, one that has none is 0.
func (n *Need) Counted() bool {
	return !n.Single() && slices.ContainsFunc(n.Lines, func(l NeedLine) bool { return l.Tasks != Count{} })
}

// Cut is the need with that many lines at most; the others are counted as left out.
func (n Need) Cut(lines int) Need {
	for _, l := range n.Lines[min(lines, len(n.Lines)):] {
		n.More.N++
		n.MoreTasks = n.MoreTasks.Add(l.Tasks)
	}
	n.Lines = n.Lines[:min(lines, len(n.Lines))]
	return n
}

// Rest says what is left out of the lines; empty: nothing.
func (n *Need) Rest() string {
	switch {
	case n.More.N == 0 && !n.More.AtLeast:
		return ""
	case n.Single():
		return n.More.String() + " more"
	}
	return fmt.Sprintf("%v more, with %s", n.More, n.MoreTasks.Tasks())
}

// String is a number with commas between thousands, as 1,234 or ≥ 10,000.
func (c Count) String() string {
	switch {
	case c.Unknown():
		return say.Of("count.unknown")
	case c.AtLeast:
		return "≥ " + say.Number(c.N)
	}
	return say.Number(c.N)
}

// Tasks is 1 task, 1,234 tasks, ≥ 10,000 tasks, or tasks where they were not counted.
func (c Count) Tasks() string {
	if c.Unknown() {
		return "tasks"
	}
	return say.Of("count.tasks", "n", c)
}

// Add is the sum of two counts, without a bound.
func (c Count) Add(o Count) Count { return Count{c.N + o.N, c.AtLeast || o.AtLeast} }

// SortNeeds puts causes before consequences, and of each first what concerns the most tasks. What is wrong with a node
// comes before all: its tasks are not known.
func SortNeeds(needs []Need) {
	slices.SortStableFunc(needs, func(a, b Need) int {
		if a, b := a.Kind == NeedTrouble, b.Kind == NeedTrouble; a != b {
			return truth(b) - truth(a)
		}
		return cmp.Or(truth(b.Cause())-truth(a.Cause()), cmp.Compare(b.Tasks.N, a.Tasks.N))
	})
}

func truth(is bool) int {
	if is {
		return 1
	}
	return 0
}

// needOf is a need that is as large as its lines together, of which it keeps the largest. Without lines it is none.
func needOf(kind NeedKind, at time.Time, lines []NeedLine, title func(lines, tasks Count) string) []Need {
	if len(lines) == 0 {
		return nil
	}
	slices.SortStableFunc(lines, func(a, b NeedLine) int { return cmp.Or(cmp.Compare(b.Tasks.N, a.Tasks.N), cmp.Compare(a.ID, b.ID)) })
	n := Need{Kind: kind, Lines: lines, At: at}
	for i := range lines {
		if n.Tasks = n.Tasks.Add(lines[i].Tasks); lines[i].Time.IsZero() {
			lines[i].Note = ""
		}
	}
	if kind == NeedPauses && len(lines) > 1 {
		n.Tasks = Count{lines[0].Tasks.N, true}
	}
	n.Title = title(Count{N: int64(len(lines))}, n.Tasks)
	return []Need{n.Cut(NeedLinesMax)}
}

// holding is the title of causes: how many there are, and how many tasks wait for them.
func holding(kind, wait string) func(lines, tasks Count) string {
	return func(lines, tasks Count) string {
		text := say.Of("need."+kind, "n", lines)
		if tasks.N > 0 {
			text += say.Of("need."+wait, "n", tasks)
		}
		return text
	}
}

// FlowNeeds are what of the flow wants an operator: agents that are gone, and what holds tasks back. What waits for an agent
// is counted once of these: of an agent that is gone, an open breaker or a limit, the first.
func FlowNeeds(at time.Time, agents []Agent, pauses []PauseView, limits []Limit) []Need {
	var gone, lacking, open, held, bounded []NeedLine
	waiting := map[string]Count{}
	for i := range agents {
		a := &agents[i]
		all := a.Waiting.Add(a.Unserved)
		shut := a.Breaker.State == core.BreakerOpen || a.Breaker.State == core.BreakerTrial
		if l := a.lacks(); l.Tasks.N > 0 && !a.Gone {
			lacking = append(lacking, l)
		}
		switch {
		case a.Gone && (all.N > 0 || all.AtLeast):
			text := say.Of("need.no-instance", "agent", a.Name)
			if shut {
				text += say.Of("need.and-breaker", "state", a.Breaker.State)
			}
			gone = append(gone, NeedLine{ID: a.Name, Text: text, Tasks: all, Note: "since", Time: a.AwaySince})
		case shut:
			open = append(open, NeedLine{ID: a.Name, Text: joined(": ", a.Name, a.Breaker.Reason), Tasks: a.Waiting, Note: string(a.Breaker.State) + " since", Time: a.Breaker.Since})
		case !a.Paused:
			waiting[a.Name] = a.Waiting
		}
	}
	for i := range pauses {
		p := &pauses[i]
		l := NeedLine{ID: p.ID, Text: p.Scope() + ": " + p.Reason, Tasks: p.Waiting, Note: "since", Time: p.At}
		if !p.Until.IsZero() {
			l.Note, l.Time = "ends", p.Until
		}
		held = append(held, l)
	}
	for i := range limits {
		if l := &limits[i]; l.binds() && waiting[l.Agent].N > 0 {
			bounded = append(bounded, NeedLine{ID: l.Agent, Text: joined(": ", l.Agent, l.Reason), Tasks: waiting[l.Agent], Note: "since", Time: l.Since})
		}
	}
	return slices.Concat(
		needOf(NeedAgents, at, gone, holding("gone", "wait")),
		needOf(NeedAgents, at, lacking, holding("lacking", "wait")),
		needOf(NeedBreakers, at, open, holding("open", "wait")),
		needOf(NeedPauses, at, held, holding("paused", "held")),
		needOf(NeedLimits, at, bounded, holding("bounded", "wait")))
}

// lacks are the tasks in flight at steps that the agent does not serve.
func (a *Agent) lacks() NeedLine {
	l := NeedLine{ID: a.Name, Tasks: Count{AtLeast: a.StepsMore}, Note: "since", Time: a.AwaySince}
	var steps []string
	for i := range a.Steps {
		if s := &a.Steps[i]; s.NotServed {
			l.Tasks.N += s.Tasks
			steps = append(steps, s.Type+"/"+s.Step)
		}
	}
	l.Text = say.Of("need.not-served", "agent", a.Name, "steps", strings.Join(steps, ", "))
	return l
}

// joined is text with a separator where both parts are there.
func joined(separator, a, b string) string {
	if b == "" {
		return a
	}
	return a + separator + b
}

// Scope is what a pause holds, in words.
func (p *Pause) Scope() string {
	var parts []string
	for _, of := range []struct{ name, value string }{{"agent", p.Agent}, {"type", p.Type}, {"step", p.Step}, {"label", p.Label}} {
		if of.value != "" {
			parts = append(parts, of.name+" "+of.value)
		}
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, ", ")
}

// binds reports whether more is wanted of a limit than it lets through, as far as it says.
func (l *Limit) binds() bool {
	return l.Rate > 0 || l.KeyRate > 0 || l.Concurrent > 0 && l.Wanted > int64(l.Concurrent) ||
		slices.ContainsFunc(l.BusiestKeys, func(k KeyGranted) bool { return k.Wanted > k.Places })
}

// ErrorNeeds are the tasks in error, by failure groups: the largest, of all that Groups counted.
func ErrorNeeds(at time.Time, largest Groups) []Need {
	if len(largest.Groups) == 0 {
		return nil
	}
	n := Need{Kind: NeedErrors, Tasks: largest.Tasks, At: at, MoreTasks: largest.Tasks, More: largest.All,
		Title: say.Of("need.errors", "n", largest.Tasks, "groups", largest.All)}
	for _, g := range largest.Groups[:min(len(largest.Groups), NeedLinesMax)] {
		n.Lines = append(n.Lines, NeedLine{ID: g.ID, Text: g.Type + " · " + StepWord(g.Step) + ": " + core.ShortText(g.Example, 160), Tasks: g.Tasks, Note: "newest", Time: g.Last})
		n.More.N, n.MoreTasks.N = max(0, n.More.N-1), max(0, n.MoreTasks.N-g.Tasks.N)
	}
	return []Need{n}
}

// StepWord names the step that a failure group is about.
func StepWord(step string) string {
	if step == "" {
		return say.Of("need.no-step")
	}
	return "step " + step
}

// DeadlineNeeds are tasks near their deadline, the nearest first; more: there are others.
func DeadlineNeeds(at time.Time, within time.Duration, soon []core.View, more bool) []Need {
	if len(soon) == 0 {
		return nil
	}
	all := Count{int64(len(soon)), more}
	n := Need{Kind: NeedDeadlines, Tasks: all, At: at, Title: say.Of("need.soon", "n", all, "min", int(within.Minutes()))}
	for i := range soon[:min(len(soon), NeedLinesMax)] {
		v := &soon[i]
		n.Lines = append(n.Lines, NeedLine{ID: v.Type + "/" + v.ID, Text: v.Type + "/" + v.ID, Tasks: Count{N: 1}, Note: string(v.State) + ", deadline", Time: v.CompleteBy.Time()})
	}
	n.More = Count{all.N - int64(len(n.Lines)), more}
	n.MoreTasks = n.More
	return []Need{n}
}

// AnswerNeeds are tasks that wait for an answer, the most urgent first.
func AnswerNeeds(at time.Time, within time.Duration, s *Signals) []Need {
	if s.Tasks.N == 0 {
		return nil
	}
	near := say.Of("need.none-near", "min", int(within.Minutes()))
	if s.Near.N > 0 || s.Near.AtLeast {
		near = say.Of("need.near", "n", s.Near, "min", int(within.Minutes()))
	}
	n := Need{Kind: NeedAnswers, Tasks: s.Tasks, At: at, Title: say.Of("need.answers", "n", s.Tasks, "near", near)}
	for i := range s.Next[:min(len(s.Next), NeedLinesMax)] {
		o := &s.Next[i]
		n.Lines = append(n.Lines, NeedLine{ID: o.Type + "/" + o.ID, Text: o.Type + "/" + o.ID + " · " + strings.Join(o.Steps, ", "), Tasks: Count{N: 1}, Note: "must be answered", Time: o.Due})
	}
	n.More = Count{max(0, s.Tasks.N-int64(len(n.Lines))), s.Tasks.AtLeast}
	n.MoreTasks = n.More
	return []Need{n}
}

// OperationNeeds are operations that stand, by themselves or by an operator.
func OperationNeeds(at time.Time, ops []Operation) []Need {
	var stand []NeedLine
	for i := range ops {
		if op := &ops[i]; op.State == OperationBraked || op.State == OperationPaused {
			stand = append(stand, NeedLine{ID: op.ID, Text: joined(" · ", fmt.Sprintf("%s: %s of %s", op.State, op.Action, op.Selection), op.Why), Tasks: Count{N: op.Tally.Waiting}, Note: "started", Time: op.Started})
		}
	}
	return needOf(NeedOperations, at, stand, func(lines, tasks Count) string {
		return say.Of("need.operations", "n", lines, "tasks", tasks.Tasks())
	})
}

// TroubleNeeds are the conditions of a node that do not hold.
func TroubleNeeds(at time.Time, troubles []Trouble) (all []Need) {
	for _, t := range troubles {
		all = append(all, Need{Kind: NeedTrouble, Title: "This node: " + t.Name, Lines: []NeedLine{{ID: t.Name, Text: t.Text, Note: "since", Time: t.Since}}, At: at})
	}
	return all
}
