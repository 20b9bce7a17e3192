package node

import "context"

// markOf is live.Config.Mark of a state store; nil: it tells none.
func markOf(store any) func(context.Context) (string, error) {
	marks, ok := store.(interface {
		Mark(ctx context.Context) (string, error)
	})
	if !ok {
		return nil
	}
	return marks.Mark
}
