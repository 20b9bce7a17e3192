package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
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
	// unknownRate bounds the lookups of ids that are not in memory: guesses, most of all. One source has a part of them.
	unknownRate  = 50 // a second
	unknownBurst = 100
	sourceEach   = time.Second / 10
	sourceBurst  = 20
	// listEach is how often all ids are read while more are shown than are looked up.
	listEach = time.Second
)

// recent are values of the state store that were asked for lately, by id: one that changed at another node is known here
// within cacheFor. While the store is away one that was read counts for up to staleFor. It is safe for concurrent use.
type recent[V any] struct {
	what  string                                          // one of them is, for the log
	fetch func(ctx context.Context, id string) (V, error) // error: core.ErrNotFound
	list  func(ctx context.Context) (ids []string, err error)
	now   func() time.Time
	log   *slog.Logger
	flat  singleflight.Group
	limit *rate.Limiter    // lookups of what is not in memory
	from  *operate.Buckets // the same, of one source

	mu      sync.Mutex
	entries map[string]entry[V]
	ids     map[string]struct{} // of all that were stored
	listed  time.Time           // when that was
}

// entry is a value as it was read.
type entry[V any] struct {
	value   V
	read    time.Time // when that was
	tried   time.Time // when it was last tried
	touched time.Time // when its use was last noted
}

func newRecent[V any](what string, fetch func(context.Context, string) (V, error), list func(context.Context) ([]string, error), now func() time.Time, log *slog.Logger) *recent[V] {
	return &recent[V]{what: what, fetch: fetch, list: list, now: now, log: log, limit: rate.NewLimiter(unknownRate, unknownBurst), from: operate.NewBuckets(sourceEach, sourceBurst), entries: map[string]entry[V]{}}
}

// tokens are the tokens that were shown lately.
type tokens struct {
	*recent[operate.Token]
	store operate.TokenStore
}

func newTokens(store operate.TokenStore, now func() time.Time, log *slog.Logger) *tokens {
	list := func(ctx context.Context) ([]string, error) {
		all, err := store.Tokens(ctx)
		ids := make([]string, len(all))
		for i := range all {
			ids[i] = all[i].ID
		}
		return ids, err
	}
	return &tokens{newRecent("token", store.TokenByID, list, now, log), store}
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

// get is the token of an id. Errors: errToken, errTooMany, errStore.
func (t *tokens) get(ctx context.Context, id string) (operate.Token, error) {
	token, err := t.recent.get(ctx, id)
	if errors.Is(err, core.ErrNotFound) {
		err = errToken
	}
	return token, err
}

// sourceKey is where the context of a request has its source.
type sourceKey struct{}

// withSource is the context of a request with its source.
func withSource(r *http.Request) context.Context {
	return context.WithValue(r.Context(), sourceKey{}, sourceAt(r.RemoteAddr))
}

// sourceAt is whose bounds count for who comes from an address with its port: those of the address, of IPv6 of the network
// that one has to oneself.
func sourceAt(remote string) string {
	source := hostOf(remote)
	if addr, err := netip.ParseAddr(source); err == nil && addr.Unmap().Is6() {
		network, _ := addr.WithZone("").Prefix(64) // no error: 64 bits are there
		source = network.String()
	}
	return source
}

func sourceOf(ctx context.Context) string {
	source, _ := ctx.Value(sourceKey{}).(string)
	return source
}

// get is the value of an id, from memory while that is young. Errors: core.ErrNotFound, errTooMany, errStore.
func (r *recent[V]) get(ctx context.Context, id string) (none V, err error) {
	now := r.now()
	r.mu.Lock()
	known, ok := r.entries[id]
	r.mu.Unlock()
	if ok && now.Sub(known.tried) < cacheFor {
		return known.value, nil
	}
	if !ok && !(r.from.Allow(now, sourceOf(ctx)) && r.limit.AllowN(now, 1)) && !r.stored(ctx, id) {
		return none, errTooMany
	}
	// Not by the context of the request: others wait for the same answer.
	found, err, _ := r.flat.Do(id, func() (any, error) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupMax)
		defer cancel()
		return r.read(bounded, id, known, ok)
	})
	if err != nil {
		return none, err
	}
	return found.(V), nil
}

// stored reports whether an id was one of those that are stored, a moment ago. So guesses, however many and wherever they
// come from, keep no one out: behind a proxy all are of one source.
func (r *recent[V]) stored(ctx context.Context, id string) bool {
	now := r.now()
	r.mu.Lock()
	old := now.Sub(r.listed) >= listEach
	r.mu.Unlock()
	if old {
		_, _, _ = r.flat.Do("", func() (any, error) { // an id has letters
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupMax)
			defer cancel()
			all, err := r.list(bounded)
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.listed = now; err != nil {
				r.log.Debug("the ids of "+r.what+"s could not be read", "error", err)
				return nil, nil
			}
			r.ids = make(map[string]struct{}, len(all))
			for _, one := range all {
				r.ids[one] = struct{}{}
			}
			return nil, nil
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.ids[id]
	return ok
}

// read reads a value; one that is not there is not kept: guesses fill no memory.
func (r *recent[V]) read(ctx context.Context, id string, known entry[V], had bool) (none V, err error) {
	now := r.now()
	value, err := r.fetch(ctx, id)
	switch {
	case errors.Is(err, core.ErrNotFound):
		r.drop(id)
		return none, core.ErrNotFound
	case err != nil && had && now.Sub(known.read) < staleFor:
		r.log.Debug("a "+r.what+" is taken as it was read before", "error", err)
		known.tried = now
		r.put(id, known)
		return known.value, nil
	case err != nil:
		r.log.Debug("a "+r.what+" could not be looked up", "error", err)
		return none, errStore
	}
	r.put(id, entry[V]{value: value, read: now, tried: now})
	return value, nil
}

func (r *recent[V]) drop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, id)
}

// put keeps an entry, and when its use was noted; of too many, some other goes.
func (r *recent[V]) put(id string, e entry[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, there := r.entries[id]
	if e.touched = before.touched; !there && len(r.entries) >= cacheMax {
		for other := range r.entries {
			delete(r.entries, other)
			break
		}
	}
	r.entries[id] = e
}
