package drone

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"
)

// BodyBytesMax bounds the body of a request to the HTTP face.
const BodyBytesMax = 64 << 10

// Doors is how the HTTP face reaches Duly. A nil error of all but Probe means
// that the request is stored, synced to disk.
type Doors interface {
	// Submit also tells the position of what was stored, for Tasks.Task.
	Submit(ctx context.Context, r *Request) (position string, err error)
	// Reschedule is Submit of a rescheduling.
	Reschedule(ctx context.Context, r *Reschedule) (position string, err error)
	Cancel(ctx context.Context, id, reason string) error
	// Withdraw is Cancel also of an id that is not there yet: a submission under it is refused then.
	Withdraw(ctx context.Context, id, reason string) error
	Probe(ctx context.Context) error
}

// Tasks reads what became of a delivery or a rescheduling.
type Tasks interface {
	// Task returns ErrNoTask for an id that is no task of the type. after is the
	// position a submission was stored at, or empty: until Duly has worked the
	// stream off up to there, an id it does not know is pending.
	Task(ctx context.Context, typ, id, after string) (Task, error)
}

// Task is what Duly says of a task, as far as the example looks at it.
type Task struct {
	State      string          `json:"state"`
	Reason     string          `json:"reason"`
	FailedStep string          `json:"failed_step"` // whose failure is the reason, if one's is
	Input      json.RawMessage `json:"input"`
	Steps      []TaskStep      `json:"steps"`
}

// TaskStep is one step of a Task.
type TaskStep struct {
	Name   string          `json:"name"`
	Status string          `json:"status"`
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// ErrNoTask says that Duly does not know an id.
var ErrNoTask = errors.New("no such delivery")

// FaceOptions are what the HTTP face works with.
type FaceOptions struct {
	Doors   Doors
	Tasks   Tasks
	Timeout time.Duration // for one request to Duly; 0 means 5 s
}

// Face is the reference application's HTTP interface:
//
//	POST   /api/deliveryrequests       202 once the request is stored, 200 if it was before
//	GET    /api/deliveryrequests/{id}  200 with the state
//	DELETE /api/deliveryrequests/{id}  204 once the cancellation is stored
//	PATCH  /api/deliveryrequests/{id}  202 once its rescheduling is stored
//	GET    /api/probe                  200 if NATS answers
//
// Errors are application/problem+json (RFC 9457).
type Face struct {
	mux    http.ServeMux
	doors  Doors
	tasks  Tasks
	limit  time.Duration
	recent recent
}

// NewFace returns the face as a handler.
func NewFace(o FaceOptions) *Face {
	f := &Face{doors: o.Doors, tasks: o.Tasks, limit: o.Timeout}
	if f.limit == 0 {
		f.limit = 5 * time.Second
	}
	f.mux.HandleFunc("POST /api/deliveryrequests", f.post)
	f.mux.HandleFunc("GET /api/deliveryrequests/{id}", f.get)
	f.mux.HandleFunc("DELETE /api/deliveryrequests/{id}", f.remove)
	f.mux.HandleFunc("PATCH /api/deliveryrequests/{id}", f.patch)
	f.mux.HandleFunc("GET /api/probe", f.probe)
	return f
}

// ServeHTTP bounds every request in time before it is routed.
func (f *Face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), f.limit)
	defer cancel()
	f.mux.ServeHTTP(w, r.WithContext(ctx))
}

// NewServer wraps a handler in a server that no slow client can hold up.
func NewServer(addr string, h http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

func (f *Face) post(w http.ResponseWriter, r *http.Request) {
	req, p := readRequest(w, r)
	if p != nil {
		p.write(w)
		return
	}
	if req.DeliveryID == "" {
		req.DeliveryID = newID()
	} else if done := f.repeated(w, r, req); done {
		return
	}
	position, err := f.doors.Submit(r.Context(), req)
	if err != nil {
		p := problemOf(err)
		// The one thing a caller needs to try again without doubling anything.
		p.DeliveryID = req.DeliveryID
		p.write(w)
		return
	}
	f.recent.add(req.DeliveryID, position, time.Now())
	accept(w, http.StatusAccepted, req, "?after="+url.QueryEscape(position))
}

// repeated answers for an id that Duly knows already. It is a courtesy: where
// the look-up fails, or two requests race, the insert of the task decides, and
// the same request is one task in any case.
func (f *Face) repeated(w http.ResponseWriter, r *http.Request, req *Request) (done bool) {
	task, err := f.tasks.Task(r.Context(), Type, req.DeliveryID, "")
	if err != nil || len(task.Input) == 0 {
		return false
	}
	if task.isOf(req) {
		accept(w, http.StatusOK, req, "")
		return true
	}
	p := problem{Status: http.StatusConflict, Detail: "deliveryId " + req.DeliveryID + " is taken by another request", DeliveryID: req.DeliveryID}
	p.write(w)
	return true
}

// accept echoes the request with its id, as the reference does. The Location is
// one that can be asked; with the position in its query it never answers 404.
func accept(w http.ResponseWriter, status int, req *Request, query string) {
	w.Header().Set("Location", "/api/deliveryrequests/"+req.DeliveryID+query)
	writeJSON(w, status, req)
}

// readRequest decodes and validates a body; without an id it is valid too.
func readRequest(w http.ResponseWriter, r *http.Request) (*Request, *problem) {
	body, p := readBody(w, r)
	if p != nil {
		return nil, p
	}
	req := &Request{}
	if err := json.Unmarshal(body, req); err != nil {
		return nil, badJSON(err)
	}
	checked := *req
	if checked.DeliveryID == "" {
		checked.DeliveryID = "given-later"
	}
	if err := checked.Validate(); err != nil {
		return nil, problemOf(err)
	}
	return req, nil
}

// readBody reads a body of JSON within its bound.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if kind := r.Header.Get("Content-Type"); kind != "" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
			return nil, badField(http.StatusUnsupportedMediaType, "Content-Type", kind, "application/json")
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, BodyBytesMax))
	if err != nil {
		return nil, badBody(err)
	}
	return body, nil
}

// state is what GET answers.
type state struct {
	DeliveryID string     `json:"deliveryId"`
	State      string     `json:"state"`
	Reason     string     `json:"reason,omitempty"`
	Steps      []TaskStep `json:"steps,omitempty"`
}

func (f *Face) get(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	// A 404 between the stream and the table, after our own 202, would be a lie.
	after := cmp.Or(r.URL.Query().Get("after"), f.recent.position(id, time.Now()))
	task, err := f.tasks.Task(r.Context(), Type, id, after)
	if errors.Is(err, ErrNoTask) {
		task, err = f.coming(r.Context(), id, r.URL.Query().Get("rescheduled"))
	}
	if err != nil {
		p := problemOf(err)
		p.DeliveryID = id
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, state{DeliveryID: id, State: task.State, Reason: task.Reason, Steps: task.Steps})
}

func (f *Face) remove(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	err := f.doors.Cancel(r.Context(), id, byClient)
	if refused, ok := errors.AsType[*DoorError](err); ok && refused.Code == http.StatusNotFound {
		// A successor that is not there yet is refused when it comes.
		if _, none := f.coming(r.Context(), id, r.URL.Query().Get("rescheduled")); none == nil {
			err = f.doors.Withdraw(r.Context(), id, byClient)
		}
	}
	if err != nil {
		p := problemOf(err)
		p.DeliveryID = id
		p.write(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *Face) probe(w http.ResponseWriter, r *http.Request) {
	if err := f.doors.Probe(r.Context()); err != nil {
		p := problem{Status: http.StatusServiceUnavailable, Detail: "NATS does not answer: " + err.Error()}
		p.write(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"nats": "ok"})
}

// pathID reads the id of the path, or answers 400.
func pathID(w http.ResponseWriter, r *http.Request) (string, bool) {
	var v validation
	id := r.PathValue("id")
	v.id("deliveryId", id)
	if v.fields != nil {
		problemOf(&InvalidError{Fields: v.fields}).write(w)
		return "", false
	}
	return id, true
}

// newID is a random UUID for a caller that names none.
func newID() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails, by its contract
	return formatUUID(binary.BigEndian.Uint64(bits[:8]), binary.BigEndian.Uint64(bits[8:]))
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here is a client that went away.
	_ = json.NewEncoder(w).Encode(body)
}
