package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/jsonschema"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// Limits and times of the console.
const (
	rowsOfList     = 50               // rows of a page of a list
	journalRows    = 200              // journal rows of a task's page
	journalRowsMax = 1000             // that ?rows= may ask for
	notesShown     = 50               // newest notes of a task, group or operation
	trailOfTask    = 20               // newest audit entries on a task's page
	cursorBytesMax = 512              //
	readMax        = 10 * time.Second // of all reads of a page
	streamsDefault = 1000             // see Config.StreamsMax
	confirmAbove   = 100              // tasks from which on their number has to be typed
)

// Path is where the console is, below [Config.Base].
const Path = "/console/"

// Live is the one reader of a process for everything that is shown live.
type Live interface {
	// Current is what was read last, read now if that is too old. Error: nothing was ever read.
	Current(ctx context.Context) (live.Snapshot, error)
	// Samples are those of the last minutes, the oldest first.
	Samples() []operate.Sample
	// Subscribe gives what is read from now on, until ctx ends; then the channel is closed.
	Subscribe(ctx context.Context) <-chan live.Snapshot
}

// Channel is a place that alerts are sent to.
type Channel struct {
	Name   string
	Kind   string // webhook or mail
	To     string // where to, without its secrets
	Events []string
	Last   time.Time // newest delivery; zero: none yet
	Error  string    // of the newest delivery, if it failed
}

// Alerts tells of the channels of alerts, changes and tests them. The console writes the audit entry before it calls.
type Alerts interface {
	Channels(ctx context.Context) ([]Channel, error)
	// Test sends a test alert through one channel and waits for the answer. Error: *operate.Refusal.
	Test(ctx context.Context, name string) error
	// Document is a channel as JSON, without its secret. Error: *operate.Refusal.
	Document(ctx context.Context, name string) ([]byte, error)
	// Check is a document as it would be stored. Error: *operate.Refusal.
	Check(name string, document []byte) ([]byte, error)
	// Put stores a channel in place of the one of that name; secret nil: as the document says. Error: *operate.Refusal.
	Put(ctx context.Context, name string, document []byte, secret *string) error
	// Delete forgets one and its secret. Error: *operate.Refusal.
	Delete(ctx context.Context, name string) error
}

// Config is what the console stands on. All ports are required.
type Config struct {
	Base        string // prefix of all paths, as a proxy in front has it: empty, or "/" and names
	Origin      string // that browsers send, where a proxy in front names another host to this node; empty: that host's
	PartitionOf func(id string) int
	Reader      operate.Reader
	Trail       operate.TrailReader
	Desk        *operate.Desk
	Operations  operate.OperationStore
	Notes       operate.NoteStore
	Settings    operate.SettingStore // saved views
	Actions     operate.Actions
	Repairs     operate.Operations
	Live        Live
	Agents      operate.Agents
	Books       operate.Books
	Forecaster  operate.Forecaster
	Schedules   operate.Schedules
	Partitions  operate.Partitions
	Pauses      operate.PauseControl
	Breakers    operate.BreakerControl
	Limits      operate.LimitControl
	Versions    operate.PlanControl
	Tokens      operate.TokenStore
	Alerts      Alerts
	// SignOut is the path, below Base, that ends a session with a POST; empty: there are none.
	SignOut    string
	StreamsMax int // streams of events at a time; 0: 1000
	// Ending is closed when the node ends: streams of events end then, and hold no shutdown up. nil: they end with their
	// connection alone.
	Ending  <-chan struct{}
	Version string
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: slog.Default
}

// console is the handler's state.
type console struct {
	Config
	pages   pages
	files   map[string]*file
	limits  recent[[]operate.Limit]
	schemas jsonschema.Cache // of the answers to signal steps
	closed  recent[*operate.BooksView]
	streams *operate.Places // of streams of events
	foreign *http.CrossOriginProtection
	live    liveCache

	recordings recordings
	programs   expr.Cache // the expressions of plans
}

// New returns the handler of everything below Base+[Path]. It also serves the same paths without Base, for a proxy that
// takes the prefix off. Callers need an actor in the request's context (operate.WithActor), or they read nothing.
func New(cfg Config) (http.Handler, error) {
	c, err := build(cfg)
	if err != nil {
		return nil, err
	}
	return c.routes(), nil
}

// build checks the configuration, and reads assets and templates.
func build(cfg Config) (*console, error) {
	switch {
	case cfg.Reader == nil || cfg.PartitionOf == nil:
		return nil, errors.New("console: Reader and PartitionOf are required")
	case cfg.Base != "" && (!strings.HasPrefix(cfg.Base, "/") || strings.HasSuffix(cfg.Base, "/") || strings.ContainsAny(cfg.Base, "?#\"'<> ")):
		return nil, fmt.Errorf("console: base is %s, want empty, or a path that begins with / and does not end with it", core.QuoteShort(cfg.Base))
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.StreamsMax == 0 {
		cfg.StreamsMax = streamsDefault
	}
	c := &console{Config: cfg, streams: operate.NewPlaces(cfg.StreamsMax), foreign: http.NewCrossOriginProtection(), recordings: newRecordings()}
	var err error
	if cfg.Origin != "" {
		if err = c.foreign.AddTrustedOrigin(cfg.Origin); err != nil {
			return nil, fmt.Errorf("console: origin: %w", err)
		}
	}
	if c.files, err = readFiles(assets); err != nil {
		return nil, err
	}
	sources, err := fs.Sub(templates, "templates")
	if err != nil {
		return nil, err
	}
	if c.pages, err = c.parse(sources); err != nil {
		return nil, err
	}
	return c, nil
}

// Home sends a browser that asks for / to the console below base; everything else is for next.
func Home(base string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.Redirect(w, r, base+Path, http.StatusFound)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routes is the handler of all paths.
func (c *console) routes() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, h handler) { mux.HandleFunc("GET "+Path+path, c.reads(h)) }
	post := func(path string, needs operate.Role, h handler) {
		mux.HandleFunc("POST "+Path+path, c.changes(needs, h))
	}
	form := func(path string, needs operate.Role, show, change handler) { // a page with a form, and what it sends
		get(path, c.needs(needs, show))
		post(path, needs, change)
	}
	dialog := func(path string, needs operate.Role, section string, open opener, params ...string) {
		form(path, needs, c.offer(section, open, params), c.carry(section, open))
	}
	mux.HandleFunc("GET "+Path+"assets/{hash}/{name}", c.asset)
	get("{$}", c.serve(reader{template: "overview", section: "overview", read: c.overview}))
	get("live", c.events)
	get("find", c.find)
	get("tasks", c.tasks)
	get("risk", c.serve(reader{template: "risk", section: "tasks", params: []string{"within"}, read: c.risk}))
	get("tasks/{type}/{id}", c.serve(reader{template: "task", section: "tasks", params: []string{"before", "rows"}, read: c.task}))
	get("tasks/{type}/{id}/replay", c.serve(reader{template: "replay", section: "tasks", params: []string{"at", "ms", "come"}, read: c.replay}))
	get("tasks/{type}/{id}/compare", c.serve(reader{template: "compare", section: "tasks", params: []string{"with"}, read: c.compare}))
	get("tasks/{type}/{id}/payload", c.serve(reader{template: "payload", section: "tasks", params: []string{"of", "at"}, read: c.payload}))
	form("tasks/{type}/{id}/act/{action}", operate.RoleOperator, c.actionForm, c.act)
	form("tasks/{type}/{id}/signal/{step}", operate.RoleOperator, c.signalDialog, c.signal)
	post("tasks/{type}/{id}/notes", operate.RoleOperator, c.noteOnTask)
	get("failures", c.serve(reader{template: "failures", section: "failures", params: []string{"type", "state", "after"}, read: c.failures}))
	get("failures/{id}", c.serve(reader{template: "failure", section: "failures", read: c.failure}))
	post("failures/{id}/notes", operate.RoleOperator, c.noteOnGroup)
	get("operations", c.serve(reader{template: "operations", section: "operations", params: []string{"state", "after"}, read: c.operations}))
	get("operations/{id}", c.serve(reader{template: "operation", section: "operations", params: []string{"outcome", "after"}, read: c.operation}))
	dialog("operations/{id}/change/{change}", operate.RoleOperator, "operations", c.changeOperation)
	post("operations/{id}/notes", operate.RoleOperator, c.noteOnOperation)
	get("operations/new", c.needs(operate.RoleOperator, c.newOperation))
	post("operations/preview", operate.RoleOperator, c.preview)
	post("operations/start", operate.RoleOperator, c.start)
	get("agents", c.serve(reader{template: "agents", section: "agents", read: c.agents}))
	dialog("agents/{agent}/breaker", operate.RoleOperator, "agents", c.forceBreaker)
	dialog("agents/{agent}/limit/{change}", operate.RoleOperator, "agents", c.changeLimit)
	get("books", c.serve(reader{template: "books", section: "books", params: []string{"status", "after"}, read: c.books}))
	dialog("books/compare", operate.RoleOperator, "books", c.compareBooks)
	dialog("books/repair", operate.RoleOperator, "books", c.repairBooks, "agent", "effect", "repair")
	get("schedules", c.serve(reader{template: "schedules", section: "schedules", params: []string{"after"}, read: c.schedules}))
	dialog("schedules/{name}/{change}", operate.RoleOperator, "schedules", c.changeSchedule)
	get("plans", c.serve(reader{template: "plans", section: "plans", read: c.plans}))
	get("plans/{name}", c.serve(reader{template: "plan", section: "plans", params: []string{"version", "with"}, read: c.plan}))
	dialog("plans/{name}/{version}/{change}", operate.RoleOperator, "plans", c.deprecate)
	get("partitions", c.serve(reader{template: "partitions", section: "partitions", read: c.partitions}))
	dialog("partitions/{partition}/{change}", operate.RoleAdmin, "partitions", c.changePartition)
	get("pauses", c.serve(reader{template: "pauses", section: "pauses", read: c.pauses}))
	dialog("pauses/new", operate.RoleOperator, "pauses", c.pause, "type", "step", "agent", "label", "for")
	dialog("pauses/{id}/lift", operate.RoleOperator, "pauses", c.lift)
	get("audit", c.serve(reader{template: "audit", section: "audit", params: auditNames, read: c.audit}))
	get("settings", c.serve(reader{template: "settings", section: "settings", read: c.settings}))
	dialog("settings/tokens/new", operate.RoleAdmin, "settings", c.createToken)
	dialog("settings/tokens/{id}/revoke", operate.RoleAdmin, "settings", c.revokeToken)
	dialog("settings/alerts/new", operate.RoleAdmin, "settings", c.putChannel)
	dialog("settings/alerts/{name}/edit", operate.RoleAdmin, "settings", c.putChannel)
	dialog("settings/alerts/{name}/delete", operate.RoleAdmin, "settings", c.forgetChannel)
	post("settings/alerts/{name}/test", operate.RoleAdmin, c.testAlert)
	post("views", operate.RoleOperator, c.saveView)
	post("views/{id}/delete", operate.RoleOperator, c.dropView)
	mux.HandleFunc(Path, c.reads(func(http.ResponseWriter, *http.Request) error {
		return &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("problem.no-page")}
	}))
	// A change must come from a page of ours: the browser says so itself.
	c.foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, &operate.Refusal{Code: http.StatusForbidden, Detail: say.Of("problem.other-site")})
	}))
	inner := c.foreign.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if c.Base != "" && strings.HasPrefix(r.URL.Path, c.Base+Path) {
			http.StripPrefix(c.Base, inner).ServeHTTP(w, r)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// policy lets a page load nothing but what this console serves: no inline script or style, no eval, no frame around it.
const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: a browser by plain HTTP then says of a form that it came from nowhere, and it is refused as foreign.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// reads lets an authenticated actor read.
func (c *console) reads(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var err error = &operate.Refusal{Code: http.StatusUnauthorized, Detail: say.Of("problem.sign-in")}
		if a, ok := operate.ActorFrom(r.Context()); ok && a.Role.May(operate.RoleViewer) {
			err = h(w, r)
		}
		if err != nil {
			c.fail(w, r, err)
		}
	}
}

// needs shows a page to those alone who may change what it is for: a dialog may have secrets in it.
func (c *console) needs(needs operate.Role, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if why := operate.WhyNotRole(actorOf(r), needs); why != "" {
			return notAllowed(why)
		}
		return h(w, r)
	}
}

// changes lets an actor change something. What is refused is in the audit trail as well.
func (c *console) changes(needs operate.Role, h handler) http.HandlerFunc {
	return c.reads(func(w http.ResponseWriter, r *http.Request) error {
		by := actorOf(r)
		if why := operate.WhyNotRole(by, needs); why != "" {
			return c.Desk.Note(r.Context(), &operate.Act{By: by, Action: "console.post", Target: strings.TrimPrefix(r.URL.Path, Path)}, notAllowed(why))
		}
		if err := r.ParseForm(); err != nil {
			refusal := &operate.Refusal{Code: http.StatusBadRequest, Detail: say.Of("problem.form", "error", err)}
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				refusal.Code, refusal.Detail = http.StatusRequestEntityTooLarge, say.Of("problem.form-size", "n", tooLarge.Limit)
			}
			return refusal
		}
		return h(w, r)
	})
}

func notAllowed(why string) *operate.Refusal {
	return &operate.Refusal{Code: http.StatusForbidden, Detail: why}
}

// actorOf is the actor of a request that has passed reads, as one that acts by the console.
func actorOf(r *http.Request) operate.Actor {
	a, _ := operate.ActorFrom(r.Context())
	a.Via = "console"
	return a
}

// newKey is a key by which one dialog is carried out once, however often it is sent.
func newKey() string { return rand.Text() }

// keyOf is the hidden field with the key of a dialog: that of the form that was sent, or a new one.
func keyOf(r *http.Request) map[string]string {
	return map[string]string{"key": cmp.Or(core.ShortText(r.PostForm.Get("key"), 100), newKey())}
}

// nextKey is the key of a form that was refused, and is shown again. Its own is used up: what is sent by it next is told of this
// refusal, whatever it asks for. It is kept where what it asked for may be done.
func nextKey(key string, bad *operate.Refusal) string {
	if bad.RetryMS > 0 {
		return key
	}
	return newKey()
}

// reading bounds the reads of one page.
func reading(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), readMax)
}
