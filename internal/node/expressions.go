package node

import (
	"sync"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
)

// expressions evaluates those of stored plans for the scheduler.
type expressions struct{ expr.Cache }

// limitKeys evaluates the expressions of limits' keys for the scheduler. The zero value is ready; it is safe for concurrent use.
type limitKeys struct {
	mu   sync.Mutex
	keys map[string]*limitKey
}

type limitKey struct {
	once sync.Once
	key  *expr.Key
	err  error
}

// of is that of scheduler.Config.KeyOf. An expression that another version took, and that does not compile here, is an
// error for every task.
func (x *limitKeys) of(expression string, t *core.Task) (string, error) {
	x.mu.Lock()
	k := x.keys[expression]
	if k == nil {
		if len(x.keys) >= core.LimitsMax || x.keys == nil {
			x.keys = map[string]*limitKey{}
		}
		k = &limitKey{}
		x.keys[expression] = k
	}
	x.mu.Unlock()
	k.once.Do(func() { k.key, k.err = expr.NewKey(expression) })
	if k.err != nil {
		return "", k.err
	}
	return k.key.Of(t)
}
