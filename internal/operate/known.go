package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/near"
	"duly.dev/duly/internal/say"
)

// EvenIfUnknown is the field of a request that has it done although nobody has heard of the name in it.
const EvenIfUnknown = "even_if_unknown"

// unknown refuses the first of the names that no stored plan has, or none with the others; nil: all are known. Empty ones are
// not asked for; anyway: none is. Of a plan that this node cannot read only the name is known, and its steps may have any.
func unknown(ctx context.Context, anyway bool, plans func(context.Context) ([]core.Plan, error), typ, step, agent string) (*Refusal, error) {
	if anyway {
		return nil, nil
	}
	all, err := plans(ctx)
	unreadable, some := errors.AsType[core.UnreadablePlans](err)
	if err != nil && !some {
		return nil, fmt.Errorf("plans: %w", err)
	}
	if unreadable.Newest(typ) > 0 {
		return nil, nil
	}
	var types, steps, agents []string
	for k := range all {
		types = append(types, all[k].Name)
		for _, s := range all[k].Steps {
			if typ != "" && all[k].Name != typ {
				break
			}
			if steps = append(steps, s.Name); step == "" || s.Name == step {
				agents = append(agents, s.Agent)
			}
		}
	}
	of := ""
	if typ != "" {
		of = " of type " + core.QuoteShort(typ)
	}
	return firstOf(
		unheard("type", typ, types, say.Of("refuse.type-unknown", "type", core.QuoteShort(typ))),
		unheard("step", step, steps, say.Of("refuse.no-step", "of", of, "step", core.QuoteShort(step))),
		unheard("agent", agent, agents, say.Of("refuse.no-agent", "of", of, "agent", core.QuoteShort(agent)))), nil
}

// unheard refuses a name that is not among those that are known.
func unheard(field, name string, known []string, says string) *Refusal {
	if name == "" || slices.Contains(known, name) {
		return nil
	}
	return &Refusal{Code: 404, Field: field, Detail: says + near.Ask(name, known), Insist: EvenIfUnknown}
}
