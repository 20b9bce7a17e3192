package core

// PausesMax is how many pauses there may be at a time.
const PausesMax = 1000

// Pause holds back the do commands of what it names, until it is lifted: a step that would start parks its task, as a full
// agent does. Undo commands are never held. Fields that are empty match everything.
type Pause struct {
	Type  string
	Step  string // of the type
	Agent string
	Label Label   // zero: with or without labels
	Until Instant // it lifts itself then; 0: never
}

// Over reports whether the pause has lifted itself.
func (p *Pause) Over(now Instant) bool { return p.Until != 0 && now >= p.Until }

// Covers reports whether the pause is about step i of a plan, of tasks with its label if it has one.
func (p *Pause) Covers(plan *Plan, i int) bool {
	return (p.Type == "" || p.Type == plan.Name) && (p.Step == "" || p.Step == plan.Steps[i].Name) && (p.Agent == "" || p.Agent == plan.Steps[i].Agent)
}

// Holds reports whether the pause holds step i of a task.
func (p *Pause) Holds(plan *Plan, i int, t *Task) bool {
	if !p.Covers(plan, i) {
		return false
	}
	if p.Label == (Label{}) {
		return true
	}
	for _, l := range t.Labels {
		if l == p.Label {
			return true
		}
	}
	return false
}
