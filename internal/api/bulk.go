package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

// Bounds of a submission of many.
const (
	manyStreams  = 16                        // that are read at a time
	manyWindow   = 256                       // lines of one that are not answered yet
	manyLineMax  = core.InputBytesMax + 8192 // bytes of a line
	manyIdleMax  = 30 * time.Second          // between two lines
	manyKind     = "application/x-ndjson"
	manyFlushMax = 64 // answers that are held back while more are there
)

type (
	manyIn struct {
		RawBody []byte `contentType:"application/x-ndjson"`
	}
	// lineJSON is one submission of many.
	lineJSON struct {
		Type       string          `json:"type"`
		ID         string          `json:"id,omitempty" doc:"absent: a new one"`
		Input      json.RawMessage `json:"input"`
		CompleteBy string          `json:"complete_by,omitempty"`
		StartAt    string          `json:"start_at,omitempty"`
		Version    string          `json:"plan_version,omitempty"`
		ReplyTo    string          `json:"reply_to,omitempty"`
		Trace      string          `json:"traceparent,omitempty"`

		Labels map[string]string `json:"labels,omitempty"`
	}
	// lineAnswerJSON is what became of one line.
	lineAnswerJSON struct {
		Line     int64        `json:"line"` // 1, 2, 3 …
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		State    core.State   `json:"state,omitempty"`
		Stream   string       `json:"stream,omitempty"`
		Position string       `json:"stream_position,omitempty"`
		Warning  string       `json:"warning,omitempty" doc:"of a plan that warns: the task is accepted, and late is likely"`
		Error    *problemJSON `json:"error,omitempty" doc:"why it was not accepted; absent: it is stored"`
	}
)

// describeMany describes both bodies, which are lines.
func describeMany(a *api) func(*huma.Operation) {
	return func(op *huma.Operation) {
		registry := a.huma.OpenAPI().Components.Schemas
		registry.Schema(reflect.TypeFor[lineJSON](), true, "Line")
		registry.Schema(reflect.TypeFor[lineAnswerJSON](), true, "LineAnswer")
		op.Description += " Lines are of the schemas Line and LineAnswer."
		op.Responses["200"] = &huma.Response{Description: "a line for each line", Content: map[string]*huma.MediaType{manyKind: {Schema: &huma.Schema{Type: huma.TypeString}}}}
	}
}

// many submits the lines of a body as they come, and answers each in its place. A line that is refused does not keep the
// next one out. While the client does not read its answers, no more lines are read.
func (a *api) many(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != manyKind {
		problem(w, ingest.Refuse(415, ingest.CauseBody, "content type %s is not taken; want %s: a line of JSON for each task", core.QuoteShort(r.Header.Get("Content-Type")), manyKind))
		return
	}
	defer a.batches.Add(-1)
	if n := a.batches.Add(1); n > manyStreams {
		problem(w, ingest.Refuse(429, ingest.CauseFull, "%d submissions of many are being read, the limit is %d", n-1, manyStreams).After(ingest.RetryFull))
		return
	}
	rc := http.NewResponseController(w)
	// Answers are written while lines are read; a writer that cannot is a test's.
	_ = rc.EnableFullDuplex()
	w.Header().Set("Content-Type", manyKind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	_ = rc.Flush() // a client may wait for it before it sends lines

	pending := make(chan chan lineAnswerJSON, manyWindow)
	written := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(written)
		a.answerLines(w, rc, pending, gone, r)
	}()
	a.readLines(r, rc, pending, gone)
	close(pending)
	<-written
}

// readLines submits lines until the body ends, or the client is gone.
func (a *api) readLines(r *http.Request, rc *http.ResponseController, pending chan<- chan lineAnswerJSON, gone <-chan struct{}) {
	body := bufio.NewReaderSize(r.Body, 64<<10)
	for number := int64(1); ; number++ {
		_ = rc.SetReadDeadline(time.Now().Add(manyIdleMax))
		line, long, err := readLine(body)
		if len(line) == 0 && !long && err != nil {
			if !errors.Is(err, io.EOF) {
				a.log.Debug("a submission of many ended early", "line", number, "error", err)
			}
			return
		}
		answer := make(chan lineAnswerJSON, 1)
		select {
		case pending <- answer:
		case <-gone:
			return
		}
		a.submitLine(number, line, long, answer)
		if err != nil {
			return
		}
	}
}

// readLine reads a line without its end; of one that is too long nothing is kept.
func readLine(body *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := body.ReadSlice('\n')
		if !long {
			if line = append(line, part...); len(line) > manyLineMax {
				line, long = nil, true
			}
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), long, err
		}
	}
}

// submitLine hands one line in; what becomes of it is answered once.
func (a *api) submitLine(number int64, line []byte, long bool, answer chan<- lineAnswerJSON) {
	refuse := func(said lineJSON, bad *ingest.Refusal) {
		p := problemOf(bad)
		answer <- lineAnswerJSON{Line: number, Type: core.ShortText(said.Type, core.NameBytesMax), ID: core.ShortText(said.ID, core.NameBytesMax), Error: &p}
	}
	var said lineJSON
	switch {
	case long:
		refuse(said, ingest.Refuse(413, ingest.CauseInputSize, "line %d has more than %d bytes, the limit", number, manyLineMax))
		return
	case len(line) == 0:
		refuse(said, ingest.Refuse(400, ingest.CauseBody, "line %d is empty, want a JSON object", number))
		return
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err := d.Decode(&said)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
		}
	}
	if err != nil {
		refuse(said, ingest.Refuse(400, ingest.CauseBody, "line %d is not a JSON object of type, id, input, complete_by, start_at, plan_version, reply_to, traceparent and labels: %v", number, err))
		return
	}
	labels, bad := said.labels()
	if bad != nil {
		refuse(said, bad)
		return
	}
	if said.ID == "" {
		said.ID = a.cfg.NewID()
	}
	a.door.Submit(ingest.Request{
		Type: said.Type, ID: said.ID, Input: said.Input, CompleteBy: said.CompleteBy, StartAt: said.StartAt, Version: said.Version, ReplyTo: said.ReplyTo, Trace: said.Trace, Labels: labels,
		Answer: func(became ingest.Answer) {
			if became.Err != nil {
				refuse(said, became.Err)
				return
			}
			answer <- lineAnswerJSON{Line: number, ID: became.Task, Type: said.Type, State: core.StatePending, Stream: became.Stream,
				Position: fmt.Sprintf("%d.%d", became.Partition, became.Seq), Warning: became.Warning}
		},
	})
}

// labels are those of a line as a header has them.
func (l *lineJSON) labels() (string, *ingest.Refusal) {
	all := make([]core.Label, 0, len(l.Labels))
	for _, key := range slices.Sorted(maps.Keys(l.Labels)) {
		all = append(all, core.Label{Key: key, Value: l.Labels[key]})
	}
	if err := core.CheckLabels(all); err != nil { // as they are, before a comma could make two of one
		return "", ingest.Refuse(400, ingest.CauseLabels, "%v", err)
	}
	return core.FormatLabels(all), nil
}

// answerLines writes the answers in the order of the lines. When the client is gone it only waits for them.
func (a *api) answerLines(w io.Writer, rc *http.ResponseController, pending <-chan chan lineAnswerJSON, gone chan<- struct{}, r *http.Request) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	left, held := false, 0
	leave := func(err error) {
		if err != nil && !left {
			left = true
			close(gone)
		}
	}
	for answer := range pending {
		var line lineAnswerJSON
		select {
		case line = <-answer:
		case <-r.Context().Done():
			leave(r.Context().Err())
			continue
		}
		if left {
			continue
		}
		_ = rc.SetWriteDeadline(time.Now().Add(manyIdleMax))
		leave(encoder.Encode(line))
		if held++; held >= manyFlushMax || len(pending) == 0 {
			held = 0
			_ = rc.Flush()
		}
	}
}
