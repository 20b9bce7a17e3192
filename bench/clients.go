package main

import (
	"container/heap"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/wire"
)

// Of whom the arrivals are.
const (
	clients = 1000
	tenants = 20
)

// tenantOf is the tenant of an arrival: the first has that share of each thousand, in percent, the others as much as each other.
func tenantOf(i int, firstShare float64) int {
	const spread = 619 // has no factor in common with 1000, so that a share is spread over the thousand
	if float64(i*spread%1000) < firstShare*10 {
		return 0
	}
	return 1 + i%(tenants-1)
}

// patience is what clients that obey were told: until when each submits nothing. What is put off meanwhile comes again then.
type patience struct {
	obey      int // percent of the clients
	until     [clients]atomic.Int64
	cameAgain int // tries after a refusal with a time; of the goroutine that sends alone

	mu  sync.Mutex
	put putOff
}

// obeys reports whether an arrival's client does.
func (p *patience) obeys(i int) bool { return i%clients%100 < p.obey }

// putOff are arrivals by the time at which they come again.
type putOff []laterTry

type laterTry struct {
	at int64 // ns since the generator began
	i  int
}

func (p putOff) Len() int           { return len(p) }
func (p putOff) Less(i, j int) bool { return p[i].at < p[j].at }
func (p putOff) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *putOff) Push(x any)        { *p = append(*p, x.(laterTry)) }
func (p *putOff) Pop() any {
	last := len(*p) - 1
	x := (*p)[last]
	*p = (*p)[:last]
	return x
}

// later puts an arrival off.
func (p *patience) later(i int, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	heap.Push(&p.put, laterTry{at, i})
}

// next is an arrival that comes again now.
func (p *patience) next(now int64) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.put) == 0 || p.put[0].at > now {
		return 0, false
	}
	return heap.Pop(&p.put).(laterTry).i, true
}

// comeAgain offers what was put off until now. Each has counted as answered meanwhile.
func (g *generator) comeAgain(now int64) {
	for {
		i, ok := g.clients.next(now)
		if !ok {
			return
		}
		g.answers.Add(-1)
		g.offer(i, now)
	}
}

// offer sends an arrival, unless its client was told to wait.
func (g *generator) offer(i int, now int64) {
	if until := g.clients.until[i%clients].Load(); until > now {
		if g.state[i] == unanswered {
			g.state[i], g.answered[i] = heldBack, now
		}
		g.putOff(i, until)
		return
	}
	if g.state[i] == refused {
		g.clients.cameAgain++
		g.again[i] = true
	}
	g.state[i], g.sentAt[i] = unanswered, now
	k := i % len(g.samples)
	sample := g.samples[k]
	copy(sample[g.idAt[k]:], g.id(i)) // the door copies it
	g.door.send(i, g.header(i, now), sample)
}

// putOff lets an arrival come again at a time, unless its own is over by then.
func (g *generator) putOff(i int, at int64) {
	g.answers.Add(1)
	if at < int64(g.plan.at(i)+g.settings.Deadline) {
		g.clients.later(i, at)
	}
}

// outcome notes the answer to a submission: accepted, or refused with a time to come again, 0: none.
func (g *generator) outcome(i int, ok bool, retry time.Duration) {
	now := int64(time.Since(g.began))
	switch {
	case g.state[i] != unanswered:
	case ok:
		g.state[i], g.answered[i] = accepted, now
		g.accepted.Add(1)
		g.answers.Add(1)
	default:
		g.refuse(i, now, retry)
	}
}

func (g *generator) refuse(i int, now int64, retry time.Duration) {
	g.state[i], g.answered[i] = refused, now
	if retry == 0 || !g.clients.obeys(i) {
		g.answers.Add(1)
		return
	}
	g.clients.until[i%clients].Store(now + int64(retry))
	g.putOff(i, now+int64(retry))
}

// header is what a submission says besides its input: the time that it has left, and its tenant.
func (g *generator) header(i int, now int64) nats.Header {
	if g.settings.Deadline == 0 {
		return nil
	}
	h := g.headers[tenantOf(i, g.settings.FirstShare)]
	if late := time.Duration(now) - g.plan.at(i); late > lateTold { // it comes again
		h = maps.Clone(h)
		h[wire.HeaderCompleteBy] = []string{max(g.settings.Deadline-late, time.Millisecond).Round(time.Millisecond).String()}
	}
	return h
}

// lateTold is from when on a submission says less time than it had.
const lateTold = 100 * time.Millisecond

// tenantHeaders are the headers of each tenant's submissions.
func tenantHeaders(deadline time.Duration) []nats.Header {
	all := make([]nats.Header, tenants)
	for k := range all {
		all[k] = nats.Header{wire.HeaderCompleteBy: {deadline.String()}, wire.HeaderLabels: {"tenant=t" + strconv.Itoa(k)}}
	}
	return all
}

// Reason is why submissions were refused.
type Reason struct {
	Code int    `json:"code"` // err_code, over HTTP the status
	N    int    `json:"n"`
	Text string `json:"text"` // of the first answer
}

// reasons counts refusals by code, tries that come again included.
type reasons struct {
	mu     sync.Mutex
	byCode map[int]*Reason
}

func (r *reasons) count(code int, answer []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.byCode[code]
	if is == nil {
		if r.byCode == nil {
			r.byCode = map[int]*Reason{}
		}
		is = &Reason{Code: code, Text: string(answer)}
		r.byCode[code] = is
	}
	is.N++
}

// list is the reasons by code.
func (r *reasons) list() (all []Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, code := range slices.Sorted(maps.Keys(r.byCode)) {
		all = append(all, *r.byCode[code])
	}
	return all
}
