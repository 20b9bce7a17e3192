package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
)

// The defaults of Config.
const (
	defaultConcurrentMax = 1024
	defaultStreamsMax    = 64
)

// headerKey makes the id of a POST.
const headerKey = "Idempotency-Key"

// headers are all with Duly's prefix.
var headers = submit.Headers()

// Config is how the HTTP API works. Zero fields take their defaults, except
// those that say otherwise.
type Config struct {
	Partitions    int                                 // required
	PartitionOf   func(id string, partitions int) int // required
	NewID         func() string                       // makes an id for a POST without a key; required
	ConcurrentMax int                                 // submissions whose bodies are in memory, at most
	ReadMax       time.Duration                       // how long the state store may take
	StreamsMax    int                                 // event streams at a time
	BulkRequests  int                                 // bulk submissions that are read at a time
	BulkLines     int64                               // of one request
	BulkBytes     int64                               // of one request's body
	BulkLineBytes int                                 // of one line
	BulkInFlight  int                                 // lines of one request that are not answered yet
	BulkHeldBytes int64                               // answers that wait for their clients, of all requests
	BulkWait      time.Duration                       // how long a line waits while the door has no room for it
	Ports         Ports                               // what operators read and do
	Now           func() time.Time                    // nil: time.Now
	Closing       <-chan struct{}                     // closed when the server stops: event streams end then
}

// Ports are what the routes for operators stand on: all of them, but for Level.
type Ports struct {
	Reader         operate.Reader
	Trail          operate.TrailReader
	Desk           *operate.Desk
	Actions        operate.Actions
	Operations     operate.Operations
	OperationStore operate.OperationStore
	Agents         operate.Agents
	Partitions     operate.Partitions
	Events         operate.Events
	Pauses         operate.PauseControl
	Breakers       operate.BreakerControl
	Limits         operate.LimitControl
	Versions       operate.PlanControl
	Tokens         operate.TokenStore
	Notes          operate.NoteStore
	Settings       operate.SettingStore
	Books          operate.Books
	Forecaster     operate.Forecaster
	Schedules      operate.Schedules
	Live           *live.Live
	Alerts         *alerts.Book
	Level          *slog.LevelVar // of the log of this node
	// AcceptLoss notes that an operator knows of what a stream lacks. Error: core.ErrNotFound, there is no such stream.
	AcceptLoss func(ctx context.Context, stream string) (messages uint64, err error)
	// PutPlan stores a version of a plan. Error: *operate.Refusal, 409 for a version that is stored with another content.
	PutPlan func(ctx context.Context, by operate.Actor, p core.Plan) error
}

// api serves the paths below /v1.
type api struct {
	cfg    Config
	door   Submitter
	reader Reader
	asks   *Requests
	log    *slog.Logger
	bodies *operate.Places // of submissions whose bodies are in memory

	programs  expr.Cache // of conditions that are explained
	ports     Ports
	huma      huma.API
	mux       *http.ServeMux
	paths     map[string]methods
	streams   *operate.Places        // of event streams
	batches   *operate.Places        // of bulk submissions that are read
	heldBytes *semaphore.Weighted    // answers of theirs that wait for their clients, in chunks
	bulkIdle  time.Duration          // for the client of a bulk submission to send something, or to take an answer while it sends nothing
	document  func() ([]byte, error) // openapi.json, made when it is asked for
}

// New makes the HTTP handler of the API: of /v1 and of its description, /openapi.json. Who asks stands in the context of
// a request (operate.WithActor); a request without an actor is refused with 401.
//
// Errors are problem documents (RFC 9457). The server that uses it must set its
// own timeouts for reading headers and bodies.
func New(cfg Config, door Submitter, reader Reader, asks *Requests, log *slog.Logger) http.Handler {
	return newAPI(cfg, door, reader, asks, log).mux
}

func newAPI(cfg Config, door Submitter, reader Reader, asks *Requests, log *slog.Logger) *api {
	cfg.ConcurrentMax = cmp.Or(cfg.ConcurrentMax, defaultConcurrentMax)
	cfg.ReadMax = cmp.Or(cfg.ReadMax, defaultReadMax)
	cfg.StreamsMax = cmp.Or(cfg.StreamsMax, defaultStreamsMax)
	cfg.bulkDefaults()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &api{cfg: cfg, door: door, reader: reader, asks: asks, log: log, ports: cfg.Ports,
		bodies: operate.NewPlaces(cfg.ConcurrentMax), streams: operate.NewPlaces(cfg.StreamsMax), batches: operate.NewPlaces(cfg.BulkRequests),
		mux: http.NewServeMux(), paths: map[string]methods{}, heldBytes: semaphore.NewWeighted(cfg.BulkHeldBytes / heldChunk), bulkIdle: bulkIdleMax}
	a.huma = a.newHuma()
	a.taskRoutes()
	a.fileRoute()
	a.conditionRoute()
	a.actionRoutes()
	a.streamRoutes()
	a.failureRoutes()
	a.operationRoutes()
	a.engineRoutes()
	a.adminRoutes()
	a.booksRoutes()
	a.scheduleRoutes()
	a.alertRoutes()
	a.levelRoutes()
	a.serveDocument()
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(w, ingest.Refuse(404, ingest.CauseNotFound, "%s", say.Of("refuse.no-path", "path", core.QuoteShort(r.URL.Path))))
	})
	return a
}

// methods dispatches by method, so that a wrong one is a problem document too.
type methods map[string]http.HandlerFunc

// ServeHTTP calls the handler of the method; GET serves HEAD.
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if serve, ok := m[method]; ok {
		serve(w, r)
		return
	}
	allow := ""
	for _, known := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if m[known] == nil && (known != http.MethodHead || m[http.MethodGet] == nil) {
			continue
		}
		if allow != "" {
			allow += ", "
		}
		allow += known
	}
	w.Header().Set("Allow", allow)
	problem(w, ingest.Refuse(405, ingest.CauseMethod, "%s", say.Of("refuse.no-method", "method", core.QuoteShort(r.Method), "path", core.QuoteShort(r.URL.Path), "allow", allow)))
}

// takes refuses a request whose query does not mean what its sender thinks: a parameter
// that the handler does not know, one that is said twice, or one that cannot be read;
// and so a header of Duly's that it does not know, and a key that is empty or said twice.
func takes(serve http.HandlerFunc, known ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			problem(w, ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.query-unreadable", "error", err)))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(query)) {
			if !slices.Contains(known, name) {
				problem(w, ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.query-unknown", "name", core.QuoteShort(name), "takes", takesOnly(known))))
				return
			}
			if n := len(query[name]); n > 1 {
				problem(w, ingest.Refuse(400, ingest.CauseQuery, "query parameter %s is given %d times, want once", core.QuoteShort(name), n))
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			if strings.HasPrefix(name, submit.Prefix) && !slices.Contains(headers, name) {
				problem(w, ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.header-unknown", "name", core.QuoteShort(name), "takes", strings.Join(headers, ", "))))
				return
			}
		}
		if bad := oneKey(r); bad != nil {
			problem(w, bad)
			return
		}
		serve(w, r)
	}
}

// oneKey wants an idempotency key that is given to be one: with an empty one, as of a variable that was not set, each try
// would be a task of its own.
func oneKey(r *http.Request) *ingest.Refusal {
	keys, given := r.Header[headerKey]
	switch {
	case !given:
		return nil
	case len(keys) > 1:
		return ingest.Refuse(400, ingest.CauseQuery, "header %s is given %d times (%s, %s), want once", headerKey, len(keys), core.QuoteShort(keys[0]), core.QuoteShort(keys[1]))
	case keys[0] == "" || keys[0] == `""`:
		return ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.key-empty", "header", headerKey))
	}
	return nil
}

// bodiless refuses a body where none is read: what it says would be passed over.
func bodiless(serve http.HandlerFunc, known ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := r.ContentLength
		if n < 0 { // it comes in chunks
			read, _ := io.ReadFull(r.Body, make([]byte, 1)) // one that breaks off is no request
			n = int64(read)
		}
		if n > 0 {
			says := ""
			if len(known) > 0 {
				says = "; in its query " + takesOnly(known)
			}
			problem(w, ingest.Refuse(400, ingest.CauseBody, "%s", say.Of("refuse.no-body", "method", r.Method, "says", says)))
			return
		}
		serve(w, r)
	}
}

func takesOnly(known []string) string {
	if len(known) == 0 {
		return "it takes none (what belongs to a submission is a header: " + strings.Join(headers, ", ") + ")"
	}
	return "it takes " + strings.Join(known, ", ")
}

// names checks the type and id of a path, which may be a child's.
func names(r *http.Request) (taskType, id string, bad *ingest.Refusal) {
	taskType, id = r.PathValue("type"), r.PathValue("id")
	if bad := ingest.CheckTask(taskType, id); bad != nil {
		return "", "", bad
	}
	return taskType, id, nil
}

func (a *api) partition(id string) int { return a.cfg.PartitionOf(id, a.cfg.Partitions) }

// find reads a task, bounded in time. A task of another type is not found; nor is one that the actor may not know: errOthers.
func (a *api) find(r *http.Request, taskType, id string) (core.View, error) {
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.ReadMax)
	defer cancel()
	view, err := a.reader.Get(ctx, a.partition(id), id)
	if own := scopeOf(ctx); err == nil && !own.knows(id, view.Labels) {
		return core.View{}, errOthers
	}
	if err == nil && view.Type != taskType {
		return view, fmt.Errorf("task %s of type %s: it is of type %s: %w", id, taskType, view.Type, errOtherType)
	}
	return view, err
}

var (
	errOtherType = errors.New("the id is a task of another type")
	errOthers    = fmt.Errorf("the id is a task of others: %w", core.ErrNotFound)
)

// by is who asks: the gate wants one.
func by(ctx context.Context) operate.Actor {
	actor, _ := operate.ActorFrom(ctx)
	return actor
}

// scope is what the token of a request is held to.
type scope struct {
	client bool
	ids    string       // what the ids begin with that it submits; empty: any are its own to take
	labels []core.Label // of a client: those of its own tasks. Labels that say what Duly does tell no tasks apart
}

func scopeOf(ctx context.Context) scope {
	actor := by(ctx)
	s := scope{client: actor.Role == operate.RoleClient, ids: actor.IDs()}
	bound, _ := core.ParseLabels(actor.Labels) // those of a token were checked when it was made
	for _, l := range bound {
		if s.client && l.Key != operate.IDsLabel && !l.OfEngine() {
			s.labels = append(s.labels, l)
		}
	}
	return s
}

// narrowed reports whether some tasks only may be known.
func (s *scope) narrowed() bool { return s.client && (s.ids != "" || len(s.labels) > 0) }

// knows reports whether a task with this id and these labels may be known.
func (s *scope) knows(id string, labels []core.Label) bool {
	if s.client && !strings.HasPrefix(id, s.ids) {
		return false
	}
	for _, bound := range s.labels {
		if !slices.Contains(labels, bound) {
			return false
		}
	}
	return true
}

// ownID refuses an id that the actor does not submit.
func ownID(ctx context.Context, id string) *ingest.Refusal {
	bad := by(ctx).Submits(id)
	if bad == nil {
		return nil
	}
	return ingest.Refuse(bad.Code, ingest.CauseForbidden, "%s", bad.Detail)
}

// told is an answer to a submission as its actor may have it: of a task of others no more than that its id is taken.
func (a *api) told(ctx context.Context, answer ingest.Answer) ingest.Answer {
	conflict := answer.Err != nil && answer.Err.ErrCode == ingest.CauseConflict
	if (conflict || answer.State != "") && a.others(ctx, answer.Task) {
		answer.Err = taken(answer.Task)
	}
	return answer
}

// others reports whether the task of an id is one of others, as far as its actor may know; one that cannot be read is.
func (a *api) others(ctx context.Context, id string) bool {
	own := scopeOf(ctx)
	if !own.narrowed() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadMax)
	defer cancel()
	view, err := a.reader.Get(ctx, a.partition(id), id)
	return err != nil || !own.knows(id, view.Labels)
}

// taken refuses the id of a task of others.
func taken(id string) *ingest.Refusal {
	return ingest.Refuse(409, ingest.CauseConflict, "%s", say.Of("refuse.id-others", "id", core.QuoteShort(id)))
}

// ended answers a request whose credentials have ended, and reports whether they have: nothing is done by them any more.
func ended(w http.ResponseWriter, r *http.Request) bool {
	if !errors.Is(context.Cause(r.Context()), operate.ErrEnded) {
		return false
	}
	problem(w, ingest.Refuse(401, ingest.CauseNoActor, "%v", operate.ErrEnded))
	return true
}

// storeFailed answers that the state store did, and keeps its words for the log.
func (a *api) storeFailed(w http.ResponseWriter, r *http.Request, what string, err error) {
	if ended(w, r) || r.Context().Err() != nil {
		return // the client is gone
	}
	a.log.Warn("a request could not be served", "what", what, "path", r.URL.Path, "error", err)
	problem(w, ingest.Refuse(503, ingest.CauseStore, "%s", say.Of("refuse.no-answer", "what", what)).After(ingest.RetryLog))
}

func notFound(taskType, id string) *ingest.Refusal {
	return ingest.Refuse(404, ingest.CauseNotFound, "%s", say.Of("refuse.no-task", "id", core.QuoteShort(id), "type", core.QuoteShort(taskType)))
}

// keyID makes an id of an idempotency key outside the ids' alphabet: the same
// key is the same task, whatever it looks like.
func keyID(taskType, key string) string {
	hash := sha256.Sum256([]byte(taskType + "\x00" + key))
	return "key-" + hex.EncodeToString(hash[:])[:40]
}
