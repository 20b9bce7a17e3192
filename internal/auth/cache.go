package auth

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Bounds of what is asked of the store about tokens.
const (
	// cacheFor is how long a token counts as it was read: a revocation is seen after that.
	cacheFor = 3 * time.Second
	// staleFor is how long a token counts that cannot be read again: a database that is away keeps no submission out.
	// Nothing can be revoked there meanwhile either.
	staleFor  = 10 * time.Minute
	cacheMax  = 1024
	touchEach = time.Minute
	lookupMax = 2 * time.Second
	// unknownRate bounds the lookups of ids that are not in memory: guesses, most of all.
	unknownRate  = 50 // a second
	unknownBurst = 100
)

// tokens are the tokens that were shown lately. It is safe for concurrent use.
type tokens struct {
	store operate.TokenStore
	now   func() time.Time
	log   *slog.Logger
	flat  singleflight.Group
	limit *rate.Limiter

	mu      sync.Mutex
	entries map[string]entry
}

// entry is a token as it was read.
type entry struct {
	token   operate.Token
	read    time.Time // when that was
	tried   time.Time // when it was last tried
	touched time.Time
}

func newTokens(store operate.TokenStore, now func() time.Time, log *slog.Logger) *tokens {
	return &tokens{store: store, now: now, log: log, limit: rate.NewLimiter(unknownRate, unknownBurst), entries: map[string]entry{}}
}

// Errors of check beside errToken.
var (
	errTooMany = errors.New("too many unknown tokens or sessions are shown")
	errStore   = errors.New("the token or session could not be looked up")
)

// check returns the token that a text is of. Errors: errToken, errTooMany, errStore.
func (t *tokens) check(ctx context.Context, text string) (operate.Token, error) {
	id, secret, ok := parts(text)
	if !ok {
		return operate.Token{}, errToken
	}
	token, err := t.get(ctx, id)
	if err != nil {
		return operate.Token{}, err
	}
	if !holds(&token, secret, t.now()) {
		return operate.Token{}, errToken
	}
	t.touch(ctx, &token)
	return token, nil
}

// touch notes that a token was used, once in touchEach.
func (t *tokens) touch(ctx context.Context, token *operate.Token) {
	now := t.now()
	t.mu.Lock()
	e, ok := t.entries[token.ID]
	due := ok && now.Sub(e.touched) >= touchEach && now.Sub(token.LastUsed) >= touchEach
	if due {
		e.touched = now
		t.entries[token.ID] = e
	}
	t.mu.Unlock()
	if !due {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupMax)
	defer cancel()
	if err := t.store.TouchToken(bounded, token.ID, now); err != nil {
		t.log.Debug("the use of a token was not noted", "token", token.Name, "error", err)
	}
}

// byID returns a token that still holds, for a session that was begun with it.
func (t *tokens) byID(ctx context.Context, id string) (operate.Token, error) {
	token, err := t.get(ctx, id)
	switch {
	case err != nil:
		return operate.Token{}, err
	case !token.Revoked.IsZero() || !token.Expires.IsZero() && !t.now().Before(token.Expires):
		return operate.Token{}, errToken
	}
	t.touch(ctx, &token)
	return token, nil
}

// get is the token of an id, from memory while that is young.
func (t *tokens) get(ctx context.Context, id string) (operate.Token, error) {
	now := t.now()
	t.mu.Lock()
	known, ok := t.entries[id]
	t.mu.Unlock()
	if ok && now.Sub(known.tried) < cacheFor {
		return known.token, nil
	}
	if !ok && !t.limit.AllowN(now, 1) {
		return operate.Token{}, errTooMany
	}
	// Not by the context of the request: others wait for the same answer.
	found, err, _ := t.flat.Do(id, func() (any, error) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupMax)
		defer cancel()
		return t.read(bounded, id, known, ok)
	})
	if err != nil {
		return operate.Token{}, err
	}
	return found.(operate.Token), nil
}

// read reads a token.
func (t *tokens) read(ctx context.Context, id string, known entry, had bool) (operate.Token, error) {
	now := t.now()
	token, err := t.store.TokenByID(ctx, id)
	switch {
	case errors.Is(err, core.ErrNotFound):
		t.mu.Lock()
		delete(t.entries, id)
		t.mu.Unlock()
		return operate.Token{}, errToken
	case err != nil && had && now.Sub(known.read) < staleFor:
		t.log.Debug("a token is taken as it was read before", "token", known.token.Name, "error", err)
		known.tried = now
		t.put(id, known)
		return known.token, nil
	case err != nil:
		t.log.Debug("a token could not be looked up", "error", err)
		return operate.Token{}, errStore
	}
	t.put(id, entry{token: token, read: now, tried: now})
	return token, nil
}

// put keeps an entry, and when its use was noted; of too many, some other goes.
func (t *tokens) put(id string, e entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, there := t.entries[id]
	if e.touched = before.touched; !there && len(t.entries) >= cacheMax {
		for other := range t.entries {
			delete(t.entries, other)
			break
		}
	}
	t.entries[id] = e
}
