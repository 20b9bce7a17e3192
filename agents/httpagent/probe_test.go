package httpagent

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestProbe: what the answers to a probe mean, by status and by an expression.
func TestProbe(t *testing.T) {
	type said struct {
		status int
		body   string
	}
	var says atomic.Pointer[said]
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get("Idempotency-Key") != "" {
			t.Errorf("%s with the key %q", r.Method, r.Header.Get("Idempotency-Key"))
		}
		answers(says.Load().status, says.Load().body)(w, r)
	}
	byStatus := start(t, handler, "tries: 1", plain+`probe: {path: "/charges/{key}", in_progress: [202, 423], result: "{'id': body.id}"}`)
	byText := start(t, handler, "tries: 1", plain+`probe: {path: /charges, done: [2xx, 404], outcome: "status == 404 ? 'absent' : body.state == 'paid' ? 'done' : body.state"}`)
	for _, c := range []struct {
		w       *world
		says    said
		outcome core.ProbeOutcome
		has     string // of the result, or of the error
	}{
		{byStatus, said{200, `{"id":1,"x":2}`}, core.ProbeDone, `{"id":1}`},
		{byStatus, said{404, `<html>`}, core.ProbeAbsent, ""},
		{byStatus, said{410, ``}, core.ProbeAbsent, ""},
		{byStatus, said{202, ``}, core.ProbeInProgress, ""},
		{byStatus, said{423, `<html>`}, core.ProbeInProgress, ""},
		{byStatus, said{500, ``}, "", "it answers 500"},
		{byStatus, said{403, ``}, "", "it answers 403"},
		{byStatus, said{200, `{}`}, "", `there is no "id"`},
		{byStatus, said{200, `<html>`}, "", "its body is not JSON"},
		{byText, said{200, `{"state":"paid"}`}, core.ProbeDone, `{"state":"paid"}`},
		{byText, said{200, `{"state":"in_progress"}`}, core.ProbeInProgress, ""},
		{byText, said{404, `{}`}, core.ProbeAbsent, ""},
		{byText, said{200, `{"state":"unknown"}`}, "", "nothing is known of the key"},
		{byText, said{200, `{"state":"lost"}`}, "", `outcome: it gives "lost", want done, absent, in_progress or unknown`},
	} {
		says.Store(&c.says)
		cmd := command()
		p, code, err := c.w.runtime.Probe(context.Background(), core.InstantOf(time.Now()), &cmd)
		switch {
		case c.outcome != "" && (err != nil || p.Outcome != c.outcome || !strings.Contains(string(p.Result), c.has)):
			t.Errorf("%v: %s %s %v, want %s %s", c.says, p.Outcome, p.Result, err, c.outcome, c.has)
		case c.outcome == "" && (err == nil || code == 0 || !strings.Contains(err.Error(), c.has)):
			t.Errorf("%v: %s %d %v, want an error that has %s", c.says, p.Outcome, code, err, c.has)
		}
	}
}
