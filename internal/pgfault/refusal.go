package pgfault

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Refusal is what a proxy answers in the server's place, which never hears of the
// request.
type Refusal struct {
	Holds   string // of requests one of whose texts holds it; "": of all that run something
	Least   int    // and of at least so many bytes
	Code    string // SQLSTATE of the answer
	Message string
	Fatal   bool // the session ends with it
	Mute    bool // there is no answer, until the proxy is closed; with Holds "" also to who connects
	Times   int  // it ends after so many; 0: with the next call of Refuse
}

// Refuse makes the proxy answer like that from now on, by the first that applies,
// instead of what it was told before. Without any it refuses nothing.
func (p *Proxy) Refuse(all ...Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = slices.Clone(all)
}

// Refused is how many requests were refused.
func (p *Proxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// refusal is the one that applies to a request, nil when none does. Without a request
// it is that for who connects.
func (p *Proxy) refusal(req *request) *Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.refusals {
		r := &p.refusals[i]
		applies := req == nil && r.Mute && r.Holds == ""
		if req != nil && len(req.texts) > 0 && len(req.wire) >= r.Least {
			applies = r.Holds == "" || slices.ContainsFunc(req.texts, func(t string) bool { return strings.Contains(t, r.Holds) })
		}
		if !applies {
			continue
		}
		p.refused++
		found := *r
		if r.Times == 1 {
			p.refusals = slices.Delete(p.refusals, i, i+1)
		} else if r.Times > 1 {
			r.Times--
		}
		return &found
	}
	return nil
}

// refuse is the answer to a request that is refused.
func (s *session) refuse(r *Refusal) (answer, error) {
	if r.Mute {
		<-s.p.gone.Done()
		return answer{}, errCut
	}
	if r.Fatal {
		wire, err := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: r.Code, Message: r.Message}).Encode(nil)
		if err == nil {
			err = errCut
		}
		return answer{wire: wire}, err
	}
	status := s.status
	if status == 'T' {
		status = 'E'
	}
	return refusal(r.Code, r.Message, status)
}
