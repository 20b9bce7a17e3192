package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/taskform"
)

// keyBytesMax bounds an idempotency key.
const keyBytesMax = 255

// post submits a task whose id the client may leave to us. It reads nothing itself: a
// repeated key is the same task at its owner, and the door looks whether another is.
func (a *api) post(w http.ResponseWriter, r *http.Request) {
	taskType := r.PathValue("type")
	if err := core.CheckName("type", taskType); err != nil {
		problem(w, ingest.Refuse(400, ingest.CauseTypeName, "%v", err))
		return
	}
	id, bad := a.idOf(r, taskType)
	if bad != nil {
		problem(w, bad)
		return
	}
	form, bad := a.form(r, taskType, id)
	if bad != nil {
		problem(w, bad)
		return
	}
	a.withBody(w, r, func(input []byte) { a.submit(w, r, form, input, false) })
}

// form is a submission without its input. Error: it is refused without a look at that, or at the store.
func (a *api) form(r *http.Request, taskType, id string) (submit.Form, *ingest.Refusal) {
	f := submit.Form{Type: taskType, ID: id}
	if bad, ok := errors.AsType[*submit.Error](f.ReadHeader(r.Header)); ok {
		return f, ingest.RefuseForm(bad)
	}
	if bad := bind(r.Context(), &f); bad != nil {
		return f, bad
	}
	return f, a.door.Late(&f)
}

// idOf is the id of a POST: its key where that is an id, an id made of the key
// where it is not, and a new one without a key.
func (a *api) idOf(r *http.Request, taskType string) (string, *ingest.Refusal) {
	key, ids := r.Header.Get(headerKey), scopeOf(r.Context()).ids // given once, if at all: see takes
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1] // a string of RFC 9651, as the header's draft wants it
	}
	switch {
	case key == "":
		return ids + a.cfg.NewID(), nil
	case len(key) > keyBytesMax:
		return "", ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.key-size", "header", headerKey, "key", core.QuoteShort(key), "bytes", len(key), "limit", keyBytesMax))
	case !core.PlainText(key):
		return "", ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.key-text", "header", headerKey, "key", core.QuoteShort(key)))
	case strings.HasPrefix(key, ids) && core.CheckName("id", key) == nil:
		return key, nil
	}
	return ids + keyID(taskType, key), nil
}

// put submits a task under the client's id. What the store knows of the id is
// looked at first, but a store that does not answer delays no request: the owner
// compares the inputs.
func (a *api) put(w http.ResponseWriter, r *http.Request) {
	taskType, id, bad := names(r)
	if bad == nil {
		bad = ingest.CheckNames(taskType, id)
	}
	if bad == nil {
		bad = ownID(r.Context(), id)
	}
	var form submit.Form
	if bad == nil {
		form, bad = a.form(r, taskType, id)
	}
	if bad != nil {
		problem(w, bad)
		return
	}
	a.withBody(w, r, func(input []byte) {
		view, err := a.find(r, taskType, id)
		switch {
		case errors.Is(err, errOthers):
			problem(w, taken(id))
		case err == nil || errors.Is(err, errOtherType):
			if bad := ingest.Differs(id, taskType, view.Type, input, view.InputHash); bad != nil {
				problem(w, bad)
				return
			}
			reply(w, http.StatusOK, taskform.Of(&view))
		default:
			looked := errors.Is(err, core.ErrNotFound)
			if !looked {
				a.log.Warn("a submission goes on without a look at the store", "task", id, "type", taskType, "error", err)
			}
			a.submit(w, r, form, input, looked)
		}
	})
}

// withBody reads the body, within its limit and while there is room for it.
func (a *api) withBody(w http.ResponseWriter, r *http.Request, then func(input []byte)) {
	leave, full := a.bodies.Take(r.Context(), "submissions")
	if full != nil {
		problem(w, ingest.Refuse(full.Code, ingest.CauseFull, "%s", full.Detail).After(ingest.RetryFull))
		return
	}
	defer leave()
	if r.ContentLength > core.InputBytesMax {
		problem(w, ingest.Refuse(413, ingest.CauseInputSize, "%s", say.Of("refuse.input-size", "bytes", r.ContentLength, "limit", core.InputBytesMax)))
		return
	}
	input, err := io.ReadAll(http.MaxBytesReader(w, r.Body, core.InputBytesMax))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		problem(w, ingest.Refuse(413, ingest.CauseInputSize, "%s", say.Of("refuse.input-more", "limit", core.InputBytesMax)))
		return
	}
	if err != nil {
		problem(w, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.body-unread", "error", err)))
		return
	}
	then(input)
}

// submit hands a submission in and waits for its answer, or for the client to
// go. A client that left may ask for the task by its id.
func (a *api) submit(w http.ResponseWriter, r *http.Request, form submit.Form, input []byte, looked bool) {
	answers := make(chan ingest.Answer, 1)
	form.Input = input
	req := ingest.Request{Form: form, Looked: looked, Answer: func(answer ingest.Answer) { answers <- answer }}
	if ended(w, r) { // while its body came
		return
	}
	a.door.Submit(req)
	select {
	case answer := <-answers:
		answer = a.told(r.Context(), answer)
		a.submitted(w, form.Type, &answer)
	case <-r.Context().Done():
		ended(w, r)
	}
}

// bind gives a submission the labels of the token that it comes by: its tenant and its priority are not its submitter's
// word then. What is no label stays for the door to refuse.
func bind(ctx context.Context, f *submit.Form) *ingest.Refusal {
	said, err := core.ParseLabels(f.Labels)
	if by, _ := operate.ActorFrom(ctx); by.Labels == "" || err != nil {
		return nil
	}
	if bad := ownID(ctx, f.ID); bad != nil && f.ID != "" { // without one it is made
		return bad
	}
	said, bad := bindLabels(ctx, said)
	f.Labels = core.FormatLabels(said)
	return bad
}

// bindLabels are labels that were said and those of the token beside them. Error: 403, another value of one of its keys.
func bindLabels(ctx context.Context, said []core.Label) ([]core.Label, *ingest.Refusal) {
	by, _ := operate.ActorFrom(ctx)
	bound, err := core.ParseLabels(by.Labels)
	if err != nil { // they were checked when it was made
		return said, ingest.Refuse(403, ingest.CauseForbidden, "%s", say.Of("refuse.token-labels", "name", core.QuoteShort(by.Name)))
	}
	for _, label := range bound {
		if label.Key == operate.IDsLabel {
			continue // of the id
		}
		i := slices.IndexFunc(said, func(l core.Label) bool { return l.Key == label.Key })
		switch {
		case i < 0:
			said = append(said, label)
		case said[i] != label:
			return said, ingest.Refuse(403, ingest.CauseForbidden, "%s", say.Of("refuse.label-other", "given", core.QuoteShort(said[i].String()), "name", core.QuoteShort(by.Name), "label", label))
		}
	}
	return said, nil
}

func (a *api) submitted(w http.ResponseWriter, taskType string, answer *ingest.Answer) {
	if answer.Err != nil {
		problem(w, answer.Err)
		return
	}
	if answer.State != "" {
		w.Header().Set("Location", taskPath(taskType, answer.Task))
		reply(w, http.StatusOK, acceptedJSON{Task: answer.Task, ID: answer.Task, Type: taskType, State: answer.State, Warning: answer.Warning})
		return
	}
	position := fmt.Sprintf("%d.%d", answer.Partition, answer.Seq)
	// The position in the address makes a GET that follows it answer pending,
	// not 404, while the owner has yet to read the submission.
	w.Header().Set("Location", taskPath(taskType, answer.Task)+"?after="+position)
	reply(w, http.StatusAccepted, acceptedJSON{
		Task: answer.Task, ID: answer.Task, Type: taskType, State: core.StatePending, Stream: answer.Stream, Position: position, Warning: answer.Warning,
	})
}

func taskPath(taskType, id string) string {
	return "/v1/tasks/" + url.PathEscape(taskType) + "/" + url.PathEscape(id)
}

// cancel asks that a task end. What it takes stands in the query.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	taskType, id, bad := names(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	control := core.Control{Kind: core.EventCancel, ID: id, Type: taskType, Actor: actorOf(r)}
	if bad := cancelOf(r, &control); bad != nil {
		problem(w, bad)
		return
	}
	ask := a.asks.Ask
	if by, _ := operate.ActorFrom(r.Context()); by.Role.May(operate.RoleOperator) && !by.Open { // a service's own would fill the trail
		ask = func(ctx context.Context, c core.Control) (Asked, *ingest.Refusal) { return a.asks.AskAs(ctx, by, c) }
	}
	asked, bad := ask(r.Context(), control)
	if ended(w, r) || r.Context().Err() != nil {
		return // the client is gone
	}
	if bad != nil {
		problem(w, bad)
		return
	}
	reply(w, http.StatusAccepted, cancelledJSON{
		Task: id, ID: id, Type: taskType, Asked: "cancel", State: asked.State, Outcome: asked.Outcome,
		Position: fmt.Sprintf("%d.%d", asked.Partition, asked.Seq),
	})
}

// actorOf is who the journal names: the authenticated actor, by the door that the audit trail names as well, or where
// authentication is off the address that the request came from.
func actorOf(r *http.Request) string {
	if actor, ok := operate.ActorFrom(r.Context()); ok && !actor.Open {
		return ActorAt(actor.Name, actor.Via)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return ActorAt(host, "http")
}

// cancelOf reads what goes with a cancellation.
func cancelOf(r *http.Request, c *core.Control) *ingest.Refusal {
	q := r.URL.Query()
	c.Reason = q.Get("reason")
	if !q.Has("even_if_unknown") {
		return nil
	}
	switch value := q.Get("even_if_unknown"); value {
	case "true", "1", "":
		c.EvenIfUnknown = true
	case "false", "0":
	default:
		return ingest.Refuse(400, ingest.CauseQuery, "query parameter even_if_unknown is %s, want true or false", core.QuoteShort(value))
	}
	return nil
}
