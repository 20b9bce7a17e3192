package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
)

// keyBytesMax bounds an idempotency key, reasonBytesMax a person's words.
const (
	keyBytesMax    = 255
	reasonBytesMax = 512
)

// post submits a task whose id the client may leave to us. It reads nothing: a
// repeated key is the same task at its owner.
func (a *api) post(w http.ResponseWriter, r *http.Request) {
	taskType := r.PathValue("type")
	if err := core.CheckName("type", taskType); err != nil {
		problem(w, refusal(400, CauseTypeName, "%v", err))
		return
	}
	id, bad := a.idOf(r, taskType)
	if bad != nil {
		problem(w, bad)
		return
	}
	a.withBody(w, r, func(input []byte) { a.submit(w, r, taskType, id, input) })
}

// idOf is the id of a POST: its key where that is an id, an id made of the key
// where it is not, and a new one without a key.
func (a *api) idOf(r *http.Request, taskType string) (string, *Refusal) {
	key := r.Header.Get(headerKey)
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1] // a string of RFC 9651, as the header's draft wants it
	}
	switch {
	case key == "":
		return a.cfg.NewID(), nil
	case len(key) > keyBytesMax:
		return "", refusal(400, CauseQuery, "header %s %s has %d bytes, the limit is %d", headerKey, short(key), len(key), keyBytesMax)
	case core.CheckName("id", key) == nil:
		return key, nil
	}
	return keyID(taskType, key), nil
}

// put submits a task under the client's id. What the store knows of the id is
// looked at first, but a store that does not answer holds nobody up: the owner
// settles it.
func (a *api) put(w http.ResponseWriter, r *http.Request) {
	taskType, id, bad := names(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	a.withBody(w, r, func(input []byte) {
		view, err := a.find(r, taskType, id)
		switch {
		case err == nil && bytes.Equal(view.InputHash, a.cfg.InputHash(taskType, input)):
			reply(w, http.StatusOK, viewJSON(&view))
		case err == nil && len(view.InputHash) == 0:
			problem(w, refusal(409, CauseConflict, "id %s was cancelled before it was submitted", short(id)))
		case err == nil:
			problem(w, refusal(409, CauseConflict, "id %s is a task already, with another input", short(id)))
		case errors.Is(err, errOtherType):
			problem(w, refusal(409, CauseConflict, "id %s is a task of type %s already; ids are unique across types", short(id), short(view.Type)))
		default:
			if !errors.Is(err, core.ErrNotFound) {
				a.log.Warn("a submission goes on without a look at the store", "task", id, "type", taskType, "error", err)
			}
			a.submit(w, r, taskType, id, input)
		}
	})
}

// withBody reads the body, within its limit and while there is room for it.
func (a *api) withBody(w http.ResponseWriter, r *http.Request, then func(input []byte)) {
	defer a.bodies.Add(-1)
	if n := a.bodies.Add(1); n > int64(a.cfg.ConcurrentMax) {
		problem(w, refusal(429, CauseFull, "%d submissions are being read, the limit is %d", n-1, a.cfg.ConcurrentMax).retry(retryFull))
		return
	}
	if r.ContentLength > core.InputBytesMax {
		problem(w, refusal(413, CauseInputSize, "input has %d bytes, the limit is %d", r.ContentLength, core.InputBytesMax))
		return
	}
	input, err := io.ReadAll(http.MaxBytesReader(w, r.Body, core.InputBytesMax))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		problem(w, refusal(413, CauseInputSize, "input has more than %d bytes, the limit", core.InputBytesMax))
		return
	}
	if err != nil {
		problem(w, refusal(400, CauseBody, "the body could not be read: %v", err))
		return
	}
	then(input)
}

// submit hands a submission in and waits for its answer, or for the client to
// go. A client that left may ask for the task by its id.
func (a *api) submit(w http.ResponseWriter, r *http.Request, taskType, id string, input []byte) {
	answers := make(chan Answer, 1)
	a.door.Submit(Request{
		Type: taskType, ID: id, Input: input, CompleteBy: r.Header.Get(headerCompleteBy), ReplyTo: r.Header.Get(headerReplyTo),
		Trace: r.Header.Get(headerTrace), Answer: func(answer Answer) { answers <- answer },
	})
	select {
	case answer := <-answers:
		a.submitted(w, taskType, &answer)
	case <-r.Context().Done():
	}
}

func (a *api) submitted(w http.ResponseWriter, taskType string, answer *Answer) {
	if answer.Err != nil {
		problem(w, answer.Err)
		return
	}
	position := fmt.Sprintf("%d.%d", answer.Partition, answer.Seq)
	// The position in the address makes a GET that follows it answer pending,
	// not 404, while the owner has yet to read the submission.
	w.Header().Set("Location", taskPath(taskType, answer.Task)+"?after="+position)
	reply(w, http.StatusAccepted, acceptedJSON{
		Task: answer.Task, ID: answer.Task, Type: taskType, State: core.StatePending, Stream: answer.Stream, Position: position,
	})
}

func taskPath(taskType, id string) string {
	return "/v1/tasks/" + url.PathEscape(taskType) + "/" + url.PathEscape(id)
}

// cancel asks that a task end. An id nobody knows yet becomes a cancelled task
// at its owner, so that a submission still on its way is not run.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	taskType, id, bad := names(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	reason := r.URL.Query().Get("reason")
	if len(reason) > reasonBytesMax || !utf8.ValidString(reason) || strings.ContainsRune(reason, 0) {
		problem(w, refusal(400, CauseQuery, "query parameter reason %s has %d bytes, want at most %d, UTF-8 without NUL", short(reason), len(reason), reasonBytesMax))
		return
	}
	if _, err := a.find(r, taskType, id); errors.Is(err, errOtherType) {
		problem(w, notFound(taskType, id))
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), a.cfg.ControlMax)
	defer stop()
	partition := a.partition(id)
	seq, err := a.controls.Ask(ctx, partition, core.Control{Kind: core.EventCancel, ID: id, Type: taskType, Actor: a.cfg.Actor, Reason: reason})
	if err != nil {
		a.storeFailed(w, r, "the request to cancel "+id+" may not be stored, ask again", err)
		return
	}
	reply(w, http.StatusAccepted, cancelledJSON{Task: id, ID: id, Type: taskType, Asked: "cancel", Position: fmt.Sprintf("%d.%d", partition, seq)})
}
