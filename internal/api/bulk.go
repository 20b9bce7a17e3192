package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
)

// Bounds of a bulk submission that no one chooses.
const (
	bulkFlyingBytes = 4 << 20          // of the lines of one that are not answered yet, unless a single line is larger
	bulkIdleMax     = 30 * time.Second // unless a test says otherwise: see api.bulkIdle
	bulkLook        = 256              // lines whose ids are looked for at once
	bulkKind        = "application/x-ndjson"
)

// What became of a line.
const (
	lineStored   = "stored"
	lineExisting = "existing"
	lineRefused  = "refused"
	lineFailed   = "failed"
)

type (
	bulkIn struct {
		From    int64  `query:"from" minimum:"1" doc:"lines before this one are passed over: to go on with the same body after the last line that was answered; 1 without it"`
		Answers string `query:"answers" enum:"last" doc:"last: the answers begin after the end of the body, or when no more of them can be kept; for a client that takes none before, over HTTP/2. Without it they come as they are known"`
		RawBody []byte `contentType:"application/x-ndjson"`
	}
	// lineJSON is one submission of many.
	lineJSON struct {
		submit.Form
		Labels map[string]string `json:"labels,omitempty"`
	}
	// lineAnswerJSON is what became of one line.
	lineAnswerJSON struct {
		Line     int64        `json:"line"` // 1, 2, 3 …
		Outcome  string       `json:"outcome" enum:"stored,existing,refused,failed" doc:"stored: on disk; existing: it was a task, or was stored, before; refused: it would be refused again; failed: the same may be taken later"`
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		State    core.State   `json:"state,omitempty"`
		Stream   string       `json:"stream,omitempty"`
		Position string       `json:"stream_position,omitempty"`
		Warning  string       `json:"warning,omitempty" doc:"of a plan that warns: the task is accepted, and late is likely"`
		Error    *problemJSON `json:"error,omitempty" doc:"why it was not accepted; absent: it is stored"`
	}
	// summaryJSON is the last line of the answers.
	summaryJSON struct {
		Lines    int64        `json:"lines" doc:"that were answered: the sum of the four below"`
		Stored   int64        `json:"stored"`
		Existing int64        `json:"existing"`
		Refused  int64        `json:"refused"`
		Failed   int64        `json:"failed"`
		Bytes    int64        `json:"bytes" doc:"of the body that were read"`
		Next     int64        `json:"next,omitempty" doc:"where the body was not read to its end: the line to go on from"`
		Error    *problemJSON `json:"error,omitempty" doc:"why it was not read to its end"`
	}
	lastLineJSON struct {
		Summary summaryJSON `json:"summary"`
	}
)

// bulkDefaults fills in what is not said: the defaults that the settings of a node have, see config.Bulk.
func (c *Config) bulkDefaults() {
	c.BulkRequests = cmp.Or(c.BulkRequests, 16)
	c.BulkLines = cmp.Or(c.BulkLines, 1_000_000)
	c.BulkBytes = cmp.Or(c.BulkBytes, 1<<30)
	c.BulkLineBytes = cmp.Or(c.BulkLineBytes, core.InputBytesMax+8192)
	c.BulkInFlight = cmp.Or(c.BulkInFlight, 1024)
	c.BulkHeldBytes = cmp.Or(c.BulkHeldBytes, 32<<20)
	c.BulkWait = cmp.Or(c.BulkWait, 30*time.Second)
}

// describeBulk describes both bodies, which are lines.
func describeBulk(a *api) func(*huma.Operation) {
	return func(op *huma.Operation) {
		registry := a.huma.OpenAPI().Components.Schemas
		registry.Schema(reflect.TypeFor[lineJSON](), true, "Line")
		registry.Schema(reflect.TypeFor[lineAnswerJSON](), true, "LineAnswer")
		registry.Schema(reflect.TypeFor[lastLineJSON](), true, "LastLine")
		op.MaxBodyBytes = a.cfg.BulkBytes
		op.Description += " Lines are of the schemas Line and LineAnswer; the last one of the answers is of LastLine. A body without a last line was cut off: send it again, from the line after the last that was answered."
		op.Responses["200"] = &huma.Response{Description: "a line for each line, and one that sums up", Content: map[string]*huma.MediaType{bulkKind: {Schema: &huma.Schema{Type: huma.TypeString}}}}
	}
}

// bulk is one submission of many. Four goroutines work on it: one reads lines, one hands them in, one waits for what becomes
// of them in their order, one sends the answers. What is between them is bounded, so that a client that does not take its
// answers is not read from.
type bulk struct {
	*api
	rc       *http.ResponseController
	ctx      context.Context // ends when the client is gone
	gone     context.CancelFunc
	from     int64
	parsed   chan *bulkLine // in their order, as are
	lines    chan *bulkLine // those that are handed in
	room     *semaphore.Weighted
	bytes    *semaphore.Weighted // of lines in flight
	bytesMax int64
	out      held
	flying   map[string]*bulkLine // by id; of handLines alone
	rest     time.Time            // no look at the store before then

	mu      sync.Mutex
	reading bool        // the body is not at its end
	stopped atomic.Bool // the server stops
	read    int64       // bytes; of the reader until it has ended
	ended   bool        // the body was read to its end
}

// bulkLine is one line that is to be answered.
type bulkLine struct {
	number int64
	size   int64 // of the room for bytes that it takes
	req    ingest.Request
	until  time.Time          // it waits for room at the door until then
	became chan ingest.Answer // one for each time that it is handed in
	got    *ingest.Answer     // taken from became
	answer *lineAnswerJSON    // not nil: known without the door
	done   chan struct{}      // closed when it is answered
}

// submitMany serves a bulk submission. A line that is refused does not keep the next one out; one that finds no room waits.
func (a *api) submitMany(w http.ResponseWriter, r *http.Request) {
	from, last, bad := bulkQuery(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != bulkKind {
		problem(w, ingest.Refuse(415, ingest.CauseBody, "%s", say.Of("refuse.content-type-bulk", "type", core.QuoteShort(r.Header.Get("Content-Type")), "want", bulkKind)))
		return
	}
	leave, full := a.batches.Take(r.Context(), "bulk submissions")
	if full != nil {
		problem(w, ingest.Refuse(full.Code, ingest.CauseFull, "%s", full.Detail).After(ingest.RetryFull))
		return
	}
	defer leave()
	rc := http.NewResponseController(w)
	// Answers are written while lines are read; a writer that cannot is a test's.
	_ = rc.EnableFullDuplex()
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		w.WriteHeader(http.StatusContinue) // the answer begins before the body is read, which says it by itself otherwise
	}
	h := w.Header()
	h.Set("Content-Type", bulkKind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // a proxy passes on at once
	w.WriteHeader(http.StatusOK)
	_ = rc.Flush() // a client may wait for it before it sends lines
	a.newBulk(rc, r, from, last).run(w, r)
}

// bulkQuery reads the first line that is wanted, and whether the answers are wanted last.
func bulkQuery(r *http.Request) (from int64, last bool, bad *ingest.Refusal) {
	q := r.URL.Query()
	switch answers := q.Get("answers"); answers {
	case "last":
		last = true
	case "":
	default:
		return 0, false, ingest.Refuse(400, ingest.CauseQuery, "query parameter answers is %s, want last", core.QuoteShort(answers))
	}
	said := q.Get("from")
	if said == "" {
		return 1, last, nil
	}
	from, err := strconv.ParseInt(said, 10, 64)
	if err != nil || from < 1 {
		return 0, false, ingest.Refuse(400, ingest.CauseQuery, "query parameter from is %s, want the number of a line, 1 or more", core.QuoteShort(said))
	}
	return from, last, nil
}

func (a *api) newBulk(rc *http.ResponseController, r *http.Request, from int64, last bool) *bulk {
	b := &bulk{api: a, rc: rc, from: from, parsed: make(chan *bulkLine, bulkLook), lines: make(chan *bulkLine, bulkLook), flying: map[string]*bulkLine{}, reading: true,
		room: semaphore.NewWeighted(int64(a.cfg.BulkInFlight)), bytesMax: max(bulkFlyingBytes, int64(a.cfg.BulkLineBytes))}
	b.bytes = semaphore.NewWeighted(b.bytesMax)
	b.out.init(a.heldBytes, a.bulkIdle, last)
	// A reading that fails, be it by its deadline, ends the context of the request, and the client may still be there.
	b.ctx, b.gone = context.WithCancel(context.WithoutCancel(r.Context()))
	return b
}

// run returns when everything that was read is answered, or the client is gone.
func (b *bulk) run(w io.Writer, r *http.Request) {
	defer b.gone()
	defer b.leave(r.Body)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { b.send(w) })
	defer b.out.close()
	stop := context.AfterFunc(b.ctx, b.out.drop)
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	running.Go(func() {
		select {
		case <-b.cfg.Closing:
			b.stop()
		case <-r.Context().Done():
			if errors.Is(context.Cause(r.Context()), operate.ErrEnded) {
				b.gone()
				_ = b.rc.SetReadDeadline(time.Now())
			}
		case <-ended:
		}
	})
	var summary summaryJSON
	var working sync.WaitGroup
	working.Go(b.handLines)
	working.Go(func() { b.answerLines(&summary) })
	next, bad := b.readLines(r.Body)
	b.out.begin()
	if bad == nil { // from the end of the body on the server notices that the client is gone
		noticed := context.AfterFunc(r.Context(), b.gone)
		defer noticed()
	}
	close(b.parsed)
	working.Wait()
	summary.Bytes = b.read
	if bad != nil {
		p := problemOf(bad)
		summary.Next, summary.Error = next, &p
	}
	b.put(lastLineJSON{summary})
}

// leave gives the connection back. What has come of a body that is not read to its end is taken here: the server would
// read it after the end of the request, and at its end begin to wait for the client, beside the next request.
func (b *bulk) leave(body io.Reader) {
	_ = b.rc.SetWriteDeadline(time.Now().Add(b.bulkIdle)) // for what the server writes last
	if b.ended {
		return
	}
	_ = b.rc.SetReadDeadline(time.Now())
	_, _ = io.CopyN(io.Discard, body, bulkBuffer)
}

// stop ends the reading: this server stops, and what is read is still answered.
func (b *bulk) stop() {
	b.stopped.Store(true)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading { // at its end the same deadline would take the connection for lost
		_ = b.rc.SetReadDeadline(time.Now())
	}
}

var (
	errBulkStopped = errors.New("this node stops")
	errBulkBytes   = errors.New("the body is too long")
)

// bulkBody reads a body: a client that sends nothing for too long is let go, and one that sends has time to take
// its answers.
type bulkBody struct {
	*bulk
	io.Reader
}

// Read implements io.Reader.
func (b *bulkBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.bulkIdle))
	if b.stopped.Load() {
		return 0, errBulkStopped
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	left := b.cfg.BulkBytes - b.read
	if left <= 0 {
		p = p[:1] // whether there is more
	} else if int64(len(p)) > left {
		p = p[:left]
	}
	n, err := b.Reader.Read(p)
	if b.read += int64(n); b.read > b.cfg.BulkBytes {
		b.read -= int64(n)
		return 0, errBulkBytes
	}
	// Between two readings no time counts: it is not the client that we wait for.
	_ = b.rc.SetReadDeadline(time.Time{})
	if n > 0 {
		b.out.alive(b.rc)
	}
	return n, err
}
