package api

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/submit/submittest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// site is an API over a store, a door and a control stream in memory.
type site struct {
	t        testing.TB
	handler  http.Handler
	views    map[string]core.View
	cursors  map[int]uint64
	page     core.Page
	filter   core.Filter // of the newest list
	err      error       // of every reading
	asks     *Requests
	controls []core.Control
	askErr   error
	requests []ingest.Request
	late     *ingest.Refusal                            // of every submission
	answer   func(ingest.Request) (ingest.Answer, bool) // false: no answer
	onGet    func()
	nextID   int
	trail    trail

	ownerless bool // no partition has a cursor yet
}

func newSite(t testing.TB) *site {
	s := &site{t: t, views: map[string]core.View{}, cursors: map[int]uint64{}}
	s.answer = func(r ingest.Request) (ingest.Answer, bool) {
		return ingest.Answer{Task: r.ID, Stream: "TASKS", Seq: 17, Partition: byDigit(r.ID, 4)}, true
	}
	newID := func() string { s.nextID++; return fmt.Sprintf("made-%d", s.nextID) }
	fits := func(schema string, payload []byte) error {
		if text := payload[0] == '"'; text && schema != "" {
			return errors.New("it is a text")
		}
		return nil
	}
	desk := operate.NewDesk(&s.trail, epoch.Time, slog.New(slog.DiscardHandler))
	asks, err := NewRequests(RequestsConfig{
		Partitions: 4, PartitionOf: byDigit, UnknownFor: time.Millisecond, Now: epoch.Time, Desk: desk,
		KnownType:   func(_ context.Context, taskType string) (bool, error) { return taskType != "nosuch", nil },
		CheckInput:  func(p *core.Plan, input []byte) error { return fits(p.InputSchema, input) },
		CheckSignal: func(s *core.Step, payload []byte) error { return fits(s.Schema, payload) },
		Plan: func(_ context.Context, _ string, version int64) (*core.Plan, error) {
			p := shipping
			p.Version = version
			return map[int64]*core.Plan{1: &shipping, 2: &p}[version], nil
		},
	}, living{s}, s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.asks = asks
	handler := New(Config{Partitions: 4, PartitionOf: byDigit, NewID: newID, Ports: Ports{Desk: desk}}, s, s, asks, slog.New(slog.DiscardHandler))
	s.handler = asLocal(handler)
	return s
}

// asLocal lets everyone in, as where authentication is off, unless the test says who it is.
func asLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, said := operate.ActorFrom(r.Context()); said {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(operate.WithActor(r.Context(), operate.Actor{Name: auth.LocalActor, Role: operate.RoleAdmin, Via: "http", Open: true})))
	})
}

func (s *site) Late(*submit.Form) *ingest.Refusal { return s.late }

func (s *site) Submit(r ingest.Request) {
	s.requests = append(s.requests, r)
	if a, ok := s.answer(r); ok {
		r.Answer(a)
	}
}

func (s *site) Get(_ context.Context, partition int, id string) (core.View, error) {
	if partition != byDigit(id, 4) {
		s.t.Errorf("id %s read from partition %d", id, partition)
	}
	v, ok := s.views[id]
	if s.onGet != nil {
		s.onGet()
	}
	if s.err != nil {
		return core.View{}, s.err
	}
	if !ok {
		return core.View{}, fmt.Errorf("task %s: %w", id, core.ErrNotFound)
	}
	return v, nil
}

// living reads tasks with their journals, as the store does.
type living struct{ *site }

func (l living) Get(ctx context.Context, partition int, id string) (core.View, error) {
	v, err := l.site.Get(ctx, partition, id)
	if err != nil || v.Plan() != nil {
		return v, err
	}
	return lived(v, nil), nil
}

// shipping is the plan of tasks that live in tests.
var shipping = core.Plan{Name: "delivery", Version: 1, InputSchema: `{"type":["object","integer"]}`, Steps: []core.Step{
	{Name: "drone", Agent: "drone.schedule", Undoable: true, OnExhausted: core.PolicyError},
	{Name: "approve", Kind: core.SignalStep, After: []int{0}, CompleteBy: time.Hour, Schema: `{"type":"boolean"}`},
}}.WithDefaults()

// lived is the view of a task with a journal that is in the state of a view, at its row; change has the last word.
func lived(v core.View, change func(*core.Task)) core.View {
	t := core.Task{ID: v.ID, Type: v.Type, Number: v.Number, Input: v.Input, CreatedAt: epoch.Add(-time.Second)}
	var out core.Outcome
	core.Birth(&shipping, &t, &core.Event{At: epoch.Add(-time.Second)}, &out)
	status := map[core.State]core.StepStatus{core.StateProcessed: core.StepDone, core.StateUndoing: core.StepUndoing, core.StateUndone: core.StepUndone, core.StateError: core.StepFailed}
	if s, ended := status[v.State]; ended {
		t.Steps[0].Status, t.Steps[0].Out = s, 0
	}
	if v.State == core.StateProcessed {
		t.Steps[1].Status = core.StepDone
	}
	t.State = v.State
	if v.Seq != 0 {
		t.Seq = v.Seq
	}
	if v.State == core.StateError && v.Possible != nil && !slices.Contains(v.Possible, "resubmit") {
		t.Steps[0].Status = core.StepUndone
	}
	if change != nil {
		change(&t)
	}
	is := t.View(&shipping, nil, epoch)
	is.InputHash, is.Labels, is.Seq = v.InputHash, v.Labels, v.Seq
	if v.Possible != nil {
		is.Possible = v.Possible
	}
	return is
}

func (s *site) Existing(_ context.Context, _ int, ids []string) (found []core.Existing, err error) {
	for _, id := range ids {
		if v, ok := s.views[id]; ok {
			found = append(found, core.Existing{ID: id, Type: v.Type, InputHash: v.InputHash, State: v.State})
		}
	}
	return found, s.err
}

func (s *site) List(_ context.Context, f core.Filter) (core.Page, error) {
	s.filter = f
	return s.page, s.err
}

func (s *site) Cursor(_ context.Context, partition int) (uint64, error) {
	if s.ownerless {
		return 0, fmt.Errorf("partition %d: %w", partition, core.ErrNotFound)
	}
	return s.cursors[partition], s.err
}

func (s *site) Ask(_ context.Context, partition int, c core.Control) (uint64, error) {
	s.controls = append(s.controls, c)
	return uint64(100 + partition), s.askErr
}

func (s *site) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// put stores a task as the owner would have it.
func (s *site) put(id, taskType, input string) {
	s.views[id] = core.View{ID: id, Type: taskType, State: core.StateProcessing, Input: []byte(input), InputHash: core.HashInput(taskType, []byte(input))}
}

// golden compares a response with its file.
func golden(t *testing.T, name string, w *httptest.ResponseRecorder) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", w.Code, http.StatusText(w.Code))
	keys := make([]string, 0, len(w.Header()))
	for k := range w.Header() {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(&b, "%s: %s\n", k, strings.Join(w.Header()[k], ", "))
	}
	b.WriteString("\n" + w.Body.String())
	file := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, &b, want)
	}
}

// covers: I25, G7 in put_again
// covers: G7 in put_first
// covers: G7 in put_other_input
func TestGoldenBodies(t *testing.T) {
	at := epoch
	full := core.View{
		ID: "d-1", Type: "delivery", PlanVersion: 2, Partition: 1, Number: 41, State: core.StateError, Round: 1, Failures: 4,
		LockedBy: "node-a", Reason: "step drone: no drone", CompleteBy: at.Add(time.Minute), CreatedAt: at, UpdatedAt: at.Add(2 * time.Second),
		EndedAt: at.Add(3 * time.Second), Input: []byte(`{"owner":"a & b","n":1.50}`),
		Steps: []core.StepView{
			{Name: "account", Agent: "account.check", Status: "done", Attempt: 1, Result: []byte(`true`), At: at.Add(time.Second)},
			{Name: "drone", Agent: "drone.schedule", Status: "failed", Attempt: 3, Code: 422, Error: "no \x00drone\xff", Result: []byte("not json"), At: at.Add(2 * time.Second), Due: at.Add(9 * time.Second)},
			{Name: "delivery", Agent: "delivery.create", Status: "skipped"},
		},
	}
	tests := []struct {
		name, method, target, body string
		set                        func(*site)
		headers                    []string
	}{
		{"post", "POST", "/v1/tasks/delivery", `{}`, nil, []string{headerKey, "d-1"}},
		{"put_first", "PUT", "/v1/tasks/delivery/d-1", `{}`, nil, nil},
		{"put_again", "PUT", "/v1/tasks/delivery/d-1", `{}`, func(s *site) { s.put("d-1", "delivery", `{}`) }, nil},
		{"put_other_input", "PUT", "/v1/tasks/delivery/d-1", `{"a":2}`, func(s *site) { s.put("d-1", "delivery", `{}`) }, nil},
		{"put_other_type", "PUT", "/v1/tasks/delivery/d-1", `{}`, func(s *site) { s.put("d-1", "refund", `{}`) }, nil},
		{"put_cancelled", "PUT", "/v1/tasks/delivery/d-1", `{}`, func(s *site) { s.views["d-1"] = core.View{ID: "d-1", Type: "delivery"} }, nil},
		{"get", "GET", "/v1/tasks/delivery/d-1", "", func(s *site) { s.views["d-1"] = full }, nil},
		{"get_pending", "GET", "/v1/tasks/delivery/d-1?after=1.17", "", func(s *site) { s.cursors[1] = 16 }, nil},
		{"get_unknown", "GET", "/v1/tasks/delivery/d-1", "", nil, nil},
		{"cancel", "DELETE", "/v1/tasks/delivery/d-1?reason=changed+my+mind", "", func(s *site) { s.put("d-1", "delivery", `{}`) }, nil},
		{"list", "GET", "/v1/tasks", "", func(s *site) {
			s.page = core.Page{Next: "c2", Tasks: []core.View{{ID: "a", Type: "t", State: core.StatePending, WaitsFor: "x.y", CreatedAt: at}, {ID: "b", Type: "t", State: core.StateProcessed}}}
		}, nil},
		{"list_empty", "GET", "/v1/tasks", "", nil, nil},
		{"refused", "PUT", "/v1/tasks/delivery/d-1", `{}`, func(s *site) {
			s.answer = func(r ingest.Request) (ingest.Answer, bool) {
				return ingest.Answer{Task: r.ID, Err: ingest.Refuse(429, ingest.CauseFull, "full").After(1500 * time.Millisecond)}, true
			}
		}, nil},
		{"not_served", "GET", "/v2/tasks", "", nil, nil},
		{"wrong_method", "PATCH", "/v1/tasks/delivery/d-1", "", nil, nil},
		{"store_down", "GET", "/v1/tasks/delivery/d-1", "", func(s *site) { s.err = errors.New("password=secret") }, nil},
		{"too_large", "PUT", "/v1/tasks/delivery/d-1", string(jsonOf(core.InputBytesMax + 1)), nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			if tt.set != nil {
				tt.set(s)
			}
			golden(t, tt.name, s.do(tt.method, tt.target, tt.body, tt.headers...))
		})
	}
}

// covers: I25
func TestSubmissionOverHTTP(t *testing.T) {
	s := newSite(t)
	w := s.do("PUT", "/v1/tasks/delivery/d-1", `{"a":1}`, "Duly-Complete-By", "30s", "Duly-Start-At", "10s", "Duly-Reply-To", "_INBOX.a", "Traceparent", "00-x", "Duly-Labels", "a=b, c=d")
	if w.Code != 202 || len(s.requests) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	r := s.requests[0]
	if r.Type != "delivery" || r.ID != "d-1" || string(r.Input) != `{"a":1}` || r.CompleteBy != "30s" || r.StartAt != "10s" || r.ReplyTo != "_INBOX.a" || r.Trace != "00-x" || r.Labels != "a=b, c=d" {
		t.Errorf("request %+v", r)
	}
	// What the Location says leads to the task before its owner has read it.
	if w := s.do("GET", w.Header().Get("Location"), ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"pending"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestHTTPCarriesEveryField: PUT, POST and a line of many say all that a submission can say.
func TestHTTPCarriesEveryField(t *testing.T) {
	sent := submittest.Full(t)
	var headers []string
	for name, values := range sent.Header() {
		headers = append(headers, name, values[0])
	}
	line := lineJSON{Form: sent, Labels: map[string]string{}}
	labels, err := core.ParseLabels(sent.Labels)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range labels {
		line.Labels[l.Key] = l.Value
	}
	body, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(*site) *httptest.ResponseRecorder{
		"PUT": func(s *site) *httptest.ResponseRecorder {
			return s.do("PUT", "/v1/tasks/order/o-1", string(sent.Input), headers...)
		},
		"POST": func(s *site) *httptest.ResponseRecorder {
			return s.do("POST", "/v1/tasks/order", string(sent.Input), append(headers, "Idempotency-Key", "o-1")...)
		},
		"bulk": func(s *site) *httptest.ResponseRecorder {
			return s.do("POST", "/v1/tasks", string(body), "Content-Type", "application/x-ndjson")
		},
	} {
		s := newSite(t)
		if w := do(s); len(s.requests) != 1 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
			continue
		}
		submittest.Same(t, name, s.requests[0].Form, sent, map[string]string{"Ago": "of a node that reads an outbox"})
	}
}

// TestHTTPRefusesWhatIsGivenTwice: neither of two is taken without a word.
func TestHTTPRefusesWhatIsGivenTwice(t *testing.T) {
	s := newSite(t)
	for _, method := range []string{"PUT", "POST"} {
		target := "/v1/tasks/order"
		if method == "PUT" {
			target += "/o-1"
		}
		r := httptest.NewRequest(method, target, strings.NewReader("1"))
		r.Header.Set("Content-Type", "application/json")
		r.Header["Duly-Start-At"] = []string{"1h", "2h"}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "header Duly-Start-At is given 2 times") {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
		delete(r.Header, "Duly-Start-At")
		r.Header[headerKey] = []string{"k-1", "k-2"}
		w = httptest.NewRecorder()
		if s.handler.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "header Idempotency-Key is given 2 times") {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	for line, want := range map[string]string{
		`{"type":"order","id":"o-1","input":1,"start_at":"1h","start_at":"2h"}`: `start_at`, `{"type":"order","id":"o-1","input":1,"ID":"o-2"}`: `ID`,
		`{"type":"order","id":"o-1","input":1,"start_at":"1h`: "JSON", `{"type":"order","id":"","input":1}`: "id is empty", `{"type":"order","id":null,"input":1}`: "id is empty",
	} {
		w := s.do("POST", "/v1/tasks", line, "Content-Type", "application/x-ndjson")
		if !strings.Contains(w.Body.String(), `"outcome":"refused"`) || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", line, w.Code, w.Body)
		}
	}
	if len(s.requests) != 0 {
		t.Errorf("handed in: %+v", s.requests)
	}
}

// TestIDOfPOST: without a key each try is a task of its own, so that a key that is given is one: not empty, as that of a
// variable that was not set.
//
// covers: I25, W15
func TestIDOfPOST(t *testing.T) {
	tests := []struct {
		key, id string
		code    int
	}{
		{"", "", 400}, {"order-17", "order-17", 202}, {`"order-17"`, "order-17", 202}, {`""`, "", 400},
		{"8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324", 202},
		{"not an id!", keyID("delivery", "not an id!"), 202}, {strings.Repeat("k", 65), keyID("delivery", strings.Repeat("k", 65)), 202},
		{strings.Repeat("k", 255), keyID("delivery", strings.Repeat("k", 255)), 202}, {strings.Repeat("k", 256), "", 400},
	}
	for _, tt := range tests {
		s := newSite(t)
		w := s.do("POST", "/v1/tasks/delivery", `{}`, headerKey, tt.key)
		if w.Code != tt.code {
			t.Errorf("key %.20q: %d %s, want %d", tt.key, w.Code, w.Body, tt.code)
			continue
		}
		if tt.code == 202 && (s.requests[0].ID != tt.id || core.CheckName("id", tt.id) != nil) {
			t.Errorf("key %.20q: id %s, want %s", tt.key, s.requests[0].ID, tt.id)
		}
	}
	s := newSite(t)
	if w := s.do("POST", "/v1/tasks/delivery", `{}`); w.Code != 202 || s.requests[0].ID != "made-1" {
		t.Errorf("without a key: %d %s", w.Code, w.Body)
	}
	if keyID("a", "k k") == keyID("b", "k k") {
		t.Error("a key of two types is one id")
	}
}

// A POST again under the key of a task that the door has found tells its state, not that it is pending.
//
// covers: W9
func TestPostOfATask(t *testing.T) {
	s := newSite(t)
	s.answer = func(r ingest.Request) (ingest.Answer, bool) {
		return ingest.Answer{Task: r.ID, Stream: "DULY_TASKS", Seq: 7, Partition: 1, Again: true, State: core.StateProcessed}, true
	}
	w := s.do("POST", "/v1/tasks/delivery", `{}`, headerKey, "order-17")
	if want := `{"task":"order-17","id":"order-17","type":"delivery","state":"processed"}`; w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("%d %s, want 200 %s", w.Code, w.Body, want)
	}
	if at := w.Header().Get("Location"); at != "/v1/tasks/delivery/order-17" {
		t.Errorf("Location %s", at)
	}
}

// GET and the cursor race with the owner's commit; the task must not be
// declared unknown when the commit comes between the two.
//
// covers: D1
func TestGetAfterPosition(t *testing.T) {
	tests := []struct {
		name, after string
		cursor      uint64
		born        bool // between the first reading and the cursor's
		code        int
		want        string
	}{
		{"not read yet", "1.17", 16, false, 200, `"state":"pending"`},
		{"read, and not a task", "1.17", 17, false, 404, "no task"},
		{"read long ago", "1.17", 1 << 60, false, 404, "no task"},
		{"read in between", "1.17", 17, true, 200, `"state":"processing"`},
		{"never owned", "1.17", 0, false, 200, `"state":"pending"`},
		{"wrong partition", "2.17", 0, false, 400, "belongs to partition 1"},
		{"no number", "x", 0, false, 400, "as the 202 told it"}, {"no position", "1.", 0, false, 400, "after is"},
		{"zero", "1.0", 0, false, 400, "after is"}, {"negative", "1.-1", 0, false, 400, "after is"},
		{"beyond 64 bits", "1.18446744073709551616", 0, false, 400, "after is"}, {"hostile", "1.17%00", 0, false, 400, "after is"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			s.cursors[1] = tt.cursor
			if tt.born {
				s.onGet = func() { s.put("d-1", "delivery", `{}`) }
			}
			s.ownerless = tt.name == "never owned"
			w := s.do("GET", "/v1/tasks/delivery/d-1?after="+tt.after, "")
			if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("%d %s, want %d with %s", w.Code, w.Body, tt.code, tt.want)
			}
		})
	}
}

func TestBadHTTP(t *testing.T) {
	long := strings.Repeat("x", 65)
	tests := []struct {
		method, target, body string
		code, cause          int
	}{
		{"PUT", "/v1/tasks/delivery/" + long, `{}`, 400, ingest.CauseIDName}, {"PUT", "/v1/tasks/" + long + "/x", `{}`, 400, ingest.CauseTypeName},
		{"PUT", "/v1/tasks/delivery/a%2Fb", `{}`, 400, ingest.CauseIDName}, {"PUT", "/v1/tasks/delivery/a%00b", `{}`, 400, ingest.CauseIDName},
		{"PUT", "/v1/tasks/delivery/%2e%2e", `{}`, 400, ingest.CauseIDName}, {"GET", "/v1/tasks/delivery/a.b", "", 400, ingest.CauseIDName},
		{"POST", "/v1/tasks/de.livery", `{}`, 400, ingest.CauseTypeName}, {"DELETE", "/v1/tasks/delivery/%F0%9F%92%A3", "", 400, ingest.CauseIDName},
		{"DELETE", "/v1/tasks/delivery/x1?reason=" + strings.Repeat("r", 1001), "", 400, ingest.CauseBody},
		{"DELETE", "/v1/tasks/delivery/x1?reason=%00", "", 400, ingest.CauseBody}, {"DELETE", "/v1/tasks/delivery/x1?reason=%ff", "", 400, ingest.CauseBody},
		{"GET", "/v1/tasks?limit=0", "", 400, ingest.CauseQuery}, {"GET", "/v1/tasks?limit=1001", "", 400, ingest.CauseQuery},
		{"GET", "/v1/tasks?limit=-1", "", 400, ingest.CauseQuery}, {"GET", "/v1/tasks?limit=99999999999999999999", "", 400, ingest.CauseQuery},
		{"GET", "/v1/tasks?limit=x", "", 400, ingest.CauseQuery}, {"GET", "/v1/tasks?state=done", "", 400, ingest.CauseQuery},
		{"GET", "/v1/tasks?type=a.b", "", 400, ingest.CauseTypeName}, {"GET", "/v1/tasks?after=" + strings.Repeat("x", 513), "", 400, ingest.CauseQuery},
		{"GET", "/v1/tasks/delivery", "", 405, ingest.CauseMethod}, {"PUT", "/v1/tasks", `{}`, 405, ingest.CauseMethod},
		{"OPTIONS", "/v1/tasks/delivery/x1", "", 405, ingest.CauseMethod},
		{"GET", "/", "", 404, ingest.CauseNotFound}, {"GET", "/v1", "", 404, ingest.CauseNotFound}, {"PUT", "/v1/tasks/a/b/c", `{}`, 404, ingest.CauseNotFound},
	}
	for _, tt := range tests {
		s := newSite(t)
		w := s.do(tt.method, tt.target, tt.body)
		cause := fmt.Sprintf(`"err_code":%d`, tt.cause)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), cause) || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.60s: %d %s %s, want %d cause %d", tt.method, tt.target, w.Code, w.Header().Get("Content-Type"), w.Body, tt.code, tt.cause)
		}
		if len(s.requests)+len(s.controls) != 0 {
			t.Errorf("%s %.60s went through", tt.method, tt.target)
		}
	}
}

// brokenBody fails in the middle; endless never ends.
type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) { e.read += len(p); return len(p), nil }

func TestBodies(t *testing.T) {
	s := newSite(t)
	send := func(body io.Reader, length int64) *httptest.ResponseRecorder {
		r := httptest.NewRequest("PUT", "/v1/tasks/delivery/d-1", body)
		r.ContentLength = length
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w
	}
	if w := send(brokenBody{}, -1); w.Code != 400 || !strings.Contains(w.Body.String(), "connection reset") {
		t.Errorf("broken: %d %s", w.Code, w.Body)
	}
	chunked := &endless{}
	if w := send(chunked, -1); w.Code != 413 || chunked.read > 2*core.InputBytesMax {
		t.Errorf("endless: %d after %d bytes", w.Code, chunked.read)
	}
	announced := &endless{}
	if w := send(announced, core.InputBytesMax+1); w.Code != 413 || announced.read != 0 {
		t.Errorf("announced: %d after %d bytes: refused before it is read", w.Code, announced.read)
	}
	if w := send(strings.NewReader(string(jsonOf(core.InputBytesMax))), core.InputBytesMax); w.Code != 202 {
		t.Errorf("at the limit: %d %s", w.Code, w.Body)
	}
}

// While as many bodies of one actor are in memory as may be, one more is refused unread.
//
// covers: P14
func TestBodiesAreBounded(t *testing.T) {
	s := newSite(t)
	all := s.handler
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all.ServeHTTP(w, r.WithContext(operate.WithActor(r.Context(), operate.Actor{Name: "shop", Role: operate.RoleClient, Via: "http"})))
	})
	refused := 0
	s.answer = func(r ingest.Request) (ingest.Answer, bool) {
		// Each submission brings the next one while it is being handed in.
		if w := s.do("PUT", "/v1/tasks/delivery/d-1", `{}`); w.Code == 429 {
			refused++
		}
		return ingest.Answer{Task: r.ID, Seq: 1}, true
	}
	if w := s.do("PUT", "/v1/tasks/delivery/d-1", `{}`); w.Code != 202 {
		t.Fatal(w.Code)
	}
	if len(s.requests) != defaultConcurrentMax/2 || refused != 1 {
		t.Errorf("%d at once, %d refused; want %d and 1", len(s.requests), refused, defaultConcurrentMax/2)
	}
}

// A store that does not answer holds no submission up; a read says 503 and keeps
// the store's words to itself.
//
// covers: E10
func TestStoreDown(t *testing.T) {
	s := newSite(t)
	s.err = errors.New("no route to host 10.0.0.1")
	if w := s.do("PUT", "/v1/tasks/delivery/d-1", `{}`); w.Code != 202 {
		t.Errorf("PUT: %d %s", w.Code, w.Body)
	}
	if w := s.do("DELETE", "/v1/tasks/delivery/d-1", ""); w.Code != 503 || len(s.controls) != 0 || strings.Contains(w.Body.String(), "10.0.0.1") {
		t.Errorf("DELETE: %d %s", w.Code, w.Body)
	}
	if w := s.do("DELETE", "/v1/tasks/delivery/d-1?even_if_unknown=true", ""); w.Code != 202 || len(s.controls) != 1 {
		t.Errorf("DELETE: %d %s", w.Code, w.Body)
	}
	for _, target := range []string{"/v1/tasks/delivery/d-1", "/v1/tasks/delivery/d-1?after=1.5", "/v1/tasks"} {
		w := s.do("GET", target, "")
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "10.0.0.1") {
			t.Errorf("GET %s: %d %s", target, w.Code, w.Body)
		}
	}
	s.askErr = errors.New("timeout")
	s.err = nil
	s.put("d-1", "delivery", `{}`)
	if w := s.do("DELETE", "/v1/tasks/delivery/d-1", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "ask again") {
		t.Errorf("DELETE: %d %s", w.Code, w.Body)
	}
}

// covers: D3
func TestCancelOverHTTP(t *testing.T) {
	s := newSite(t)
	s.put("d-1", "delivery", `{}`)
	s.do("DELETE", "/v1/tasks/delivery/d-1?reason=why", "")
	want := core.Control{Kind: core.EventCancel, ID: "d-1", Type: "delivery", Actor: "192.0.2.1@http", Reason: "why"}
	if len(s.controls) != 1 || !reflect.DeepEqual(s.controls[0], want) {
		t.Errorf("controls %+v", s.controls)
	}
	for _, bad := range []struct{ query, body, says string }{
		{"", `{"reason":"why"}`, "takes no body here; in its query it takes reason, even_if_unknown"}, {"?reason=a", " ", "takes no body"},
		{"?even_if_unknown=yes", "", "even_if_unknown"},
	} {
		if w := s.do("DELETE", "/v1/tasks/delivery/d-1"+bad.query, bad.body); w.Code != 400 || !strings.Contains(w.Body.String(), bad.says) || len(s.controls) != 1 {
			t.Errorf("%s %s: %d %s", bad.query, bad.body, w.Code, w.Body)
		}
	}
}

// A cancellation tells what is and what will be; one that would change nothing is
// refused, and nothing is stored of it.
//
// covers: C4
func TestCancelTellsWhatWillBe(t *testing.T) {
	for _, x := range []struct {
		state       core.State // of the task d-1 of type delivery; empty: there is none
		target      string
		code, cause int
		says        string
	}{
		{core.StateProcessing, "delivery/d-1", 202, 0, "what it did will be undone"},
		{core.StatePending, "delivery/d-1", 202, 0, "what it did will be undone"},
		{core.StateError, "delivery/d-1", 202, 0, "what it did will be undone"},
		{core.StateUndoing, "delivery/d-1", 202, 0, "asked: nothing changes: it is undone already or about to be"},
		{core.StateUndone, "delivery/d-1", 202, 0, "asked: nothing changes: it is undone already"},
		{core.StateProcessed, "delivery/d-1", 409, ingest.CauseState, "too late to cancel"},
		{core.StateProcessing, "refund/d-1", 409, ingest.CauseOtherType, `of type \"delivery\", not \"refund\"`},
		{core.StateProcessing, "refund/d-1?even_if_unknown=true", 409, ingest.CauseOtherType, "refund"},
		{"", "delivery/d-1", 404, ingest.CauseNotFound, "even_if_unknown"},
		{"", "delivery/d-1?even_if_unknown=false", 404, ingest.CauseNotFound, "even_if_unknown"},
		{"", "delivery/d-1?even_if_unknown=true", 202, 0, "now names a cancelled task"},
		{"", "nosuch/d-1", 404, ingest.CauseTypeUnknown, "nosuch"},
		{"", "nosuch/d-1?even_if_unknown=true", 404, ingest.CauseTypeUnknown, "nosuch"},
	} {
		s := newSite(t)
		if x.state != "" {
			s.put("d-1", "delivery", `{}`)
			v := s.views["d-1"]
			v.State = x.state
			s.views["d-1"] = v
		}
		w := s.do("DELETE", "/v1/tasks/"+x.target, "")
		if w.Code != x.code || !strings.Contains(w.Body.String(), x.says) || x.cause != 0 && !strings.Contains(w.Body.String(), fmt.Sprintf(`"err_code":%d`, x.cause)) {
			t.Errorf("%s, %q: %d %s", x.target, x.state, w.Code, w.Body)
		}
		if stored := len(s.controls) == 1; stored != (x.code == 202) {
			t.Errorf("%s, %q: controls %+v", x.target, x.state, s.controls)
		}
		if x.code == 202 && x.state != "" && !strings.Contains(w.Body.String(), `"state":"`+string(x.state)+`"`) {
			t.Errorf("%s: %s, want the state", x.target, w.Body)
		}
	}
}

// What was accepted a moment ago is a task soon: an id is looked for a while.
func TestAskWaitsForTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.asks.cfg.UnknownFor = defaultUnknownFor
		looks := 0
		s.onGet = func() {
			if looks++; looks == 3 {
				s.put("d-1", "delivery", `{}`)
			}
		}
		if w := s.do("DELETE", "/v1/tasks/delivery/d-1", ""); w.Code != 202 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		began := time.Now()
		if w := s.do("DELETE", "/v1/tasks/delivery/d-2", ""); w.Code != 404 || time.Since(began) > defaultUnknownFor+unknownLook {
			t.Errorf("%d %s after %v", w.Code, w.Body, time.Since(began))
		}
		unread := true
		s.asks.cfg.Unread = func(_ context.Context, partition int, before core.Instant) (bool, error) {
			return unread && partition == 2 && before == epoch, nil
		}
		if w := s.do("DELETE", "/v1/tasks/delivery/d-2", ""); w.Code != 503 || !strings.Contains(w.Body.String(), `"err_code":7035`) {
			t.Errorf("what came before is not read: %d %s", w.Code, w.Body)
		}
		if unread = false; s.do("DELETE", "/v1/tasks/delivery/d-2", "").Code != 404 {
			t.Error("what came before is read, and the task is not unknown")
		}
	})
}

// Of requests that change nothing in the task's state each is refused with the state.
func TestAskStates(t *testing.T) {
	all := []core.State{core.StatePending, core.StateProcessing, core.StateProcessed, core.StateUndoing, core.StateUndone, core.StateError}
	for kind, taken := range map[core.EventKind][]core.State{
		core.EventUndo:     all,
		core.EventResubmit: {core.StateError, core.StateUndone},
		core.EventResolve:  {core.StateError},
		core.EventExtend:   {core.StatePending, core.StateProcessing},
		core.EventEdit:     {core.StateError, core.StateUndone},
		core.EventAccept:   {core.StateError},
	} {
		for _, state := range all {
			s := newSite(t)
			s.views["d-1"] = core.View{ID: "d-1", Type: "delivery", State: state, Seq: 7}
			c := core.Control{Kind: kind, ID: "d-1", Type: "delivery"}
			switch kind {
			case core.EventResolve:
				c.As = core.StateUndone
			case core.EventExtend:
				c.Until = epoch.Add(time.Hour)
			case core.EventEdit:
				c.Input = []byte(`{}`)
			case core.EventAccept:
				c.Result = []byte(`1`)
			}
			_, bad := s.asks.Ask(t.Context(), c)
			if ok := slices.Contains(taken, state); ok != (bad == nil) || ok != (len(s.controls) == 1) {
				t.Errorf("kind %d of a task that is %s: %v, %d stored", kind, state, bad, len(s.controls))
			}
			if kind == core.EventEdit && bad == nil && s.controls[0].IfSeq != 7 {
				t.Errorf("an edit about whatever row: %+v", s.controls[0])
			}
			if bad != nil && (bad.Code != 409 || !strings.Contains(bad.Description, string(state))) {
				t.Errorf("kind %d: %+v", kind, bad)
			}
		}
	}
	s := newSite(t)
	s.put("d-1", "delivery", `{}`)
	for want, c := range map[int]core.Control{
		400: {Kind: core.EventUndo, ID: "d-1"},
		409: {Kind: core.EventUndo, ID: "d-1", Type: "refund"},
		404: {Kind: core.EventUndo, ID: "d-2", Type: "delivery"},
	} {
		if _, bad := s.asks.Ask(t.Context(), c); bad == nil || bad.Code != want {
			t.Errorf("%+v: %v, want %d", c, bad, want)
		}
	}
	if _, bad := s.asks.Ask(t.Context(), core.Control{Kind: core.EventUndo, ID: "d-1", Type: "delivery", EvenIfUnknown: true}); bad == nil || bad.Code != 400 {
		t.Errorf("an undo of what is unknown: %v", bad)
	}
}

func TestActorAt(t *testing.T) {
	for claimed, want := range map[string]string{
		"olga": "olga@nats", "": "unnamed@nats", "root@http": "root@http@nats", "a\nb\x00c\xff": "abc@nats",
		strings.Repeat("ä", 40):       strings.Repeat("ä", 32) + "@nats",
		"x" + strings.Repeat("ä", 40): "x" + strings.Repeat("ä", 31) + "@nats",
	} {
		if got := ActorAt(claimed, "nats"); got != want {
			t.Errorf("%q: %q, want %q", claimed, got, want)
		}
	}
}

// What a request says and nothing here understands is refused, by its name.
//
// covers: C8
func TestUnknownParameters(t *testing.T) {
	for _, x := range []struct{ method, target, body, header, says string }{
		{"PUT", "/v1/tasks/delivery/d-1?complete_by=5s", `{}`, "", "complete_by"},
		{"POST", "/v1/tasks/delivery?complete_by=5s", `{}`, "", "Duly-Complete-By"},
		{"PUT", "/v1/tasks/delivery/d-1?reason=x", `{}`, "", "reason"},
		{"GET", "/v1/tasks/delivery/d-1?afer=1.2", "", "", "afer"},
		{"GET", "/v1/tasks?limits=2", "", "", "limits"},
		{"GET", "/v1/tasks?limit=2&limit=3", "", "", "2 times"},
		{"GET", "/v1/tasks?limit=%zz", "", "", "cannot be read"},
		{"GET", "/v1/tasks?limit=2;state=error", "", "", "cannot be read"},
		{"DELETE", "/v1/tasks/delivery/d-1?force=1", "", "", "force"},
		{"PUT", "/v1/tasks/delivery/d-1", `{}`, "Duly-Completeby", "Duly-Completeby"},
	} {
		s := newSite(t)
		s.put("d-1", "delivery", `{}`)
		var headers []string
		if x.header != "" {
			headers = []string{x.header, "5s"}
		}
		w := s.do(x.method, x.target, x.body, headers...)
		if w.Code != 400 || !strings.Contains(w.Body.String(), x.says) || len(s.requests)+len(s.controls) != 0 {
			t.Errorf("%s %s: %d %s", x.method, x.target, w.Code, w.Body)
		}
	}
}

func TestList(t *testing.T) {
	s := newSite(t)
	s.do("GET", "/v1/tasks?type=delivery&state=error&limit=7&after=abc&label=tier%3Dgold", "")
	if want := (core.Filter{Type: "delivery", State: core.StateError, Label: "tier=gold", Limit: 7, After: "abc"}); s.filter != want {
		t.Errorf("filter %+v, want %+v", s.filter, want)
	}
	s.do("GET", "/v1/tasks", "")
	if want := (core.Filter{Limit: 100}); s.filter != want {
		t.Errorf("filter %+v, want %+v", s.filter, want)
	}
	if w := s.do("GET", "/v1/tasks?label=gold", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "key=value") {
		t.Errorf("a label without a value: %d %s", w.Code, w.Body)
	}
	s.views["l"] = core.View{ID: "l", Type: "delivery", State: core.StatePending, Labels: []core.Label{{Key: "b", Value: "2"}, {Key: "a", Value: "1"}}}
	if w := s.do("GET", "/v1/tasks/delivery/l", ""); !strings.Contains(w.Body.String(), `"labels":{"a":"1","b":"2"}`) {
		t.Errorf("labels: %s", w.Body)
	}
	if w := s.do("HEAD", "/v1/tasks", ""); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
}

// A client that goes away leaves nothing behind; its late answer finds room.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.answer = func(ingest.Request) (ingest.Answer, bool) { return ingest.Answer{}, false }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "PUT", "/v1/tasks/delivery/d-1", strings.NewReader(`{}`))
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Body.Len() != 0 {
			t.Errorf("answered %s", w.Body)
		}
		s.requests[0].Answer(ingest.Answer{Task: "d-1"})
	})
}

// The whole way: HTTP, inbox, door, stream.
//
// covers: T4
func TestHTTPThroughTheDoor(t *testing.T) {
	in := running(t)
	s := newSite(t)
	handler := New(Config{Partitions: 16, PartitionOf: byDigit, NewID: func() string { return "new1" }}, in, s, s.asks, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		path, body string
		code       int
	}{{"/v1/tasks/order", `{}`, 202}, {"/v1/tasks/order", `{`, 400}, {"/v1/tasks/order", string(jsonOf(1001)), 413}} {
		w := httptest.NewRecorder()
		asLocal(handler).ServeHTTP(w, httptest.NewRequest("POST", tt.path, strings.NewReader(tt.body)))
		if w.Code != tt.code {
			t.Errorf("%s %.20s: %d %s, want %d", tt.path, tt.body, w.Code, w.Body, tt.code)
		}
	}
}
