package operate

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// bucketsMax bounds the actors or addresses that have a bucket of their own.
const bucketsMax = 4096

// Buckets bound how often each of many does something. Those for whom there is no room share one. It is safe for concurrent
// use.
type Buckets struct {
	rate  rate.Limit
	burst int

	mu    sync.Mutex
	each  map[string]*rate.Limiter
	rest  *rate.Limiter
	swept time.Time
}

// NewBuckets lets each do something burst times at once, and once more after each.
func NewBuckets(each time.Duration, burst int) *Buckets {
	return &Buckets{rate: rate.Every(each), burst: burst, each: map[string]*rate.Limiter{}, rest: rate.NewLimiter(rate.Every(each), burst)}
}

// Allow reports whether one may now.
func (b *Buckets) Allow(now time.Time, key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket, ok := b.each[key]
	if !ok {
		if len(b.each) >= bucketsMax && now.Sub(b.swept) >= time.Second {
			b.swept = now
			maps.DeleteFunc(b.each, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= float64(b.burst) })
		}
		bucket = b.rest
		if len(b.each) < bucketsMax {
			bucket = rate.NewLimiter(b.rate, b.burst)
			b.each[key] = bucket
		}
	}
	return bucket.AllowN(now, 1)
}

// Places bound how many do something at a time. No one actor has more than half of them, so that one alone keeps no other
// out; where authentication is off, all are one actor, to whom they all are. It is safe for concurrent use.
type Places struct {
	most int

	mu    sync.Mutex
	taken map[string]int
	all   int
}

// NewPlaces are that many places.
func NewPlaces(most int) *Places { return &Places{most: most, taken: map[string]int{}} }

// Take takes a place of a request; leave gives it back. Error: what no one, or not this actor, has more of now.
func (p *Places) Take(ctx context.Context, what string) (leave func(), bad *Refusal) {
	by, _ := ActorFrom(ctx)
	each := max(1, p.most/2)
	if by.Open {
		each = p.most
	}
	key := string(by.Role) + " " + by.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.all >= p.most:
		return nil, &Refusal{Code: 429, Detail: say.Of("refuse.open-many", "n", p.most, "what", what)}
	case p.taken[key] >= each:
		return nil, &Refusal{Code: 429, Detail: say.Of("refuse.open-many-of", "n", each, "what", what, "name", core.QuoteShort(by.Name))}
	}
	p.all++
	p.taken[key]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.taken[key]--; p.taken[key] == 0 {
			delete(p.taken, key)
		}
	}, nil
}
