package api

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/taskform"
)

// The bodies of the API. A field is never renamed or given another meaning.
type (
	acceptedJSON struct {
		Task     string     `json:"task"`
		ID       string     `json:"id"`
		Type     string     `json:"type"`
		State    core.State `json:"state"`
		Stream   string     `json:"stream,omitempty"`
		Position string     `json:"stream_position,omitempty"` // <partition>.<seq>
		Warning  string     `json:"warning,omitempty"`
	}
	cancelledJSON struct {
		Task     string     `json:"task"`
		ID       string     `json:"id"`
		Type     string     `json:"type"`
		Asked    string     `json:"asked"`
		State    core.State `json:"state,omitempty"` // when it was asked
		Outcome  string     `json:"outcome"`         // what will be, in words
		Position string     `json:"control_position"`
	}
	pendingJSON struct {
		ID        string     `json:"id"`
		Type      string     `json:"type"`
		Partition int        `json:"partition"`
		State     core.State `json:"state"`
	}
	pageJSON struct {
		Tasks   []taskform.Task `json:"tasks"`
		Next    string          `json:"next,omitempty" doc:"after of the next page; absent: this was the last"`
		Partial bool            `json:"partial,omitempty" doc:"the search was cut off, not at its end: next goes on"`
	}
	countJSON struct {
		Type    string     `json:"type"`
		State   core.State `json:"state"`
		Tasks   int64      `json:"tasks"`
		AtLeast bool       `json:"at_least,omitempty" doc:"the count was cut: there may be more than tasks; with 0 tasks none was counted, and how many there are is not known"`
	}
	// problemJSON is a problem document of RFC 9457 with members of our own.
	problemJSON struct {
		Type     string           `json:"type"`
		Title    string           `json:"title"`
		Status   int              `json:"status"`
		Detail   string           `json:"detail" doc:"one sentence: field, value and limit, or state and what is possible"`
		ErrCode  int              `json:"err_code" doc:"one number for each cause"`
		RetryMS  int64            `json:"retry_ms,omitempty" doc:"when the same request may succeed"`
		Field    string           `json:"field,omitempty" doc:"that is wrong"`
		Possible []operate.Action `json:"possible,omitempty" doc:"of 409 and 428: what may be asked of the task as it is"`
	}
)

// EncodeTask is the JSON of a task as every endpoint shows it.
func EncodeTask(v *core.View) ([]byte, error) { return encode(taskform.Of(v)) }

// EncodePage is the JSON of a page of a list as every endpoint shows it.
func EncodePage(p *core.Page) ([]byte, error) { return encode(pageOf(p)) }

func pageOf(p *core.Page) pageJSON {
	out := pageJSON{Tasks: make([]taskform.Task, len(p.Tasks)), Next: p.Next, Partial: p.Partial}
	for i := range p.Tasks {
		out.Tasks[i] = taskform.Of(&p.Tasks[i])
	}
	return out
}

// encode leaves inputs and results as they came.
func encode(body any) ([]byte, error) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return data.Bytes(), err
}

func reply(w http.ResponseWriter, status int, body any) { write(w, status, "application/json", body) }

// problem answers a refusal as a problem document.
func problem(w http.ResponseWriter, r *ingest.Refusal) {
	p := problemOf(r)
	writeProblem(w, &p)
}

func writeProblem(w http.ResponseWriter, p *problemJSON) {
	if retry := p.retryAfter(); retry != "" {
		w.Header().Set("Retry-After", retry)
	}
	write(w, p.Status, "application/problem+json", p)
}

// retryAfter is the header of that name: whole seconds, and never a hint to come back at once; empty: none.
func (p *problemJSON) retryAfter() string {
	if p.RetryMS <= 0 {
		return ""
	}
	return strconv.Itoa(int(max(1, math.Ceil(float64(p.RetryMS)/1000))))
}

func write(w http.ResponseWriter, status int, contentType string, body any) {
	data, err := encode(body)
	if err != nil {
		status = http.StatusInternalServerError
		data = []byte(`{"title":"Internal Server Error","status":500}`)
	}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// An error here is a client that went away, and cannot be told.
	_, _ = w.Write(data)
}
