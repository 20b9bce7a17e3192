package expr

import (
	"sync"

	"duly.dev/duly/internal/core"
)

// programsMax bounds a cache; a plan version takes some tens of kilobytes.
const programsMax = 1000

// Cache keeps the programs of plans. The zero value is ready; it is safe for concurrent use.
type Cache struct {
	mu       sync.Mutex
	programs map[core.PlanKey]*entry
}

type entry struct {
	once    sync.Once
	program *Program
	err     error
}

// Program is the compiled expressions of a stored plan, nil where it has none. The error is Compile's: of a plan that an
// older or newer binary took.
func (c *Cache) Program(plan *core.Plan) (*Program, error) {
	if !has(plan) {
		return nil, nil
	}
	key := core.PlanKey{Name: plan.Name, Version: plan.Version}
	c.mu.Lock()
	e := c.programs[key]
	if e == nil {
		if len(c.programs) >= programsMax || c.programs == nil {
			c.programs = map[core.PlanKey]*entry{}
		}
		e = &entry{}
		c.programs[key] = e
	}
	c.mu.Unlock()
	e.once.Do(func() { e.program, e.err = Compile(plan) })
	return e.program, e.err
}

// Bind is what answers the expressions of a stored plan for a task, nil where the plan has none. Where they cannot be
// compiled here each answer is the error.
func (c *Cache) Bind(plan *core.Plan, t *core.Task) core.Asker {
	p, err := c.Program(plan)
	switch {
	case err != nil:
		return broken{err}
	case p == nil:
		return nil
	}
	return p.Bind(t)
}

// broken answers with an error.
type broken struct{ err error }

func (b broken) When(int) (bool, error)            { return false, b.err }
func (b broken) Input(int) ([]byte, error)         { return nil, b.err }
func (b broken) Until(int) (core.Instant, error)   { return 0, b.err }
func (b broken) Elements(int) ([]byte, int, error) { return nil, 0, b.err }
func (b broken) Result() ([]byte, error)           { return nil, b.err }

// Children makes the inputs of the children of an each: see Children.Input.
func (c *Cache) Children(plan *core.Plan, t *core.Task, step int) func(index int, element []byte) ([]byte, error) {
	program, err := c.Program(plan)
	if err != nil || program == nil {
		return func(int, []byte) ([]byte, error) { return nil, err }
	}
	return program.Children(t, step).Input
}
