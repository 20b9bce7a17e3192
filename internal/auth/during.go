package auth

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"duly.dev/duly/internal/operate"
)

// lookAgain is how often the credentials of a request that lasts are looked at again.
const lookAgain = cacheFor

// during is the context of a request by an actor. It ends with operate.ErrEnded as its cause when the credentials hold no
// more, or make another actor: what lasts, an event stream most of all, has no life of its own. done lets go of it.
func (a *Auth) during(r *http.Request, actor operate.Actor) (ctx context.Context, done func()) {
	if a.cfg.Mode == Off {
		return r.Context(), func() {}
	}
	ctx, end := context.WithCancelCause(r.Context())
	var mu sync.Mutex
	var timer *time.Timer
	over := false
	look := func() {
		now, err := a.who(r)
		away := errors.Is(err, errStore) || errors.Is(err, errTooMany)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case over:
		case away || err == nil && now == actor:
			timer.Reset(lookAgain)
		default:
			end(operate.ErrEnded)
		}
	}
	mu.Lock()
	timer = time.AfterFunc(lookAgain, look)
	mu.Unlock()
	return ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
		end(nil)
	}
}
