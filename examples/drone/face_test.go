package drone

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeDuly is doors and tasks in one, with errors on demand.
type fakeDuly struct {
	stored    map[string]Request
	cancelled []string
	visible   bool // whether what is stored can be looked up
	block     bool // no answer until the caller gives up
	err       error
}

func (f *fakeDuly) answer(ctx context.Context) error {
	if f.block {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.err
}

func (f *fakeDuly) Submit(ctx context.Context, r *Request) (string, error) {
	if err := f.answer(ctx); err != nil {
		return "", err
	}
	if f.stored == nil {
		f.stored = map[string]Request{}
	}
	f.stored[r.DeliveryID] = *r
	return "3.17", nil
}

func (f *fakeDuly) Cancel(ctx context.Context, id, _ string) error {
	if err := f.answer(ctx); err != nil {
		return err
	}
	f.cancelled = append(f.cancelled, id)
	return nil
}

func (f *fakeDuly) Withdraw(ctx context.Context, id, reason string) error {
	return f.Cancel(ctx, id, reason)
}

func (f *fakeDuly) Reschedule(ctx context.Context, _ *Reschedule) (string, error) {
	return "3.18", f.answer(ctx)
}

func (f *fakeDuly) Probe(ctx context.Context) error { return f.answer(ctx) }

func (f *fakeDuly) Task(_ context.Context, typ, id, after string) (Task, error) {
	r, ok := f.stored[id]
	ok = ok && typ == Type
	if ok && !f.visible && after == "3.17" {
		return Task{State: "pending"}, nil
	}
	if !ok || !f.visible {
		return Task{}, ErrNoTask
	}
	input, err := json.Marshal(r)
	return Task{State: "processing", Input: input, Steps: []TaskStep{{Name: "account", Status: "done"}}}, err
}

func ask(face http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	face.ServeHTTP(w, r)
	return w
}

func bodyOf(t *testing.T, r Request) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const requests = "/api/deliveryrequests"

// Reference defects 1 and 2: a 202 before the broker's answer, a client's id
// overwritten, and a 404 behind the 202.
//
// covers: I25, D1, D2
func TestPostKeepsTheCallersID(t *testing.T) {
	duly := &fakeDuly{}
	face := NewFace(FaceOptions{Doors: duly, Tasks: duly})
	req := NewGenerator(1).Request(0)
	w := ask(face, "POST", requests, bodyOf(t, req))
	if w.Code != http.StatusAccepted || w.Header().Get("Location") != requests+"/"+req.DeliveryID+"?after=3.17" {
		t.Fatalf("%d, Location %q", w.Code, w.Header().Get("Location"))
	}
	var echo Request
	if err := json.Unmarshal(w.Body.Bytes(), &echo); err != nil || echo != req {
		t.Errorf("echo %+v, %v", echo, err)
	}
	if duly.stored[req.DeliveryID] != req {
		t.Errorf("stored %+v", duly.stored)
	}
	// Stored, and not in the table yet: with the position, from any process, and
	// without it from the one that answered.
	another := NewFace(FaceOptions{Doors: duly, Tasks: duly})
	for _, w := range []*httptest.ResponseRecorder{
		ask(another, "GET", w.Header().Get("Location"), ""), ask(face, "GET", requests+"/"+req.DeliveryID, ""),
	} {
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"state":"pending"`) {
			t.Errorf("behind the 202: %d %s", w.Code, w.Body)
		}
	}
	duly.visible = true
	if w := ask(face, "GET", requests+"/"+req.DeliveryID, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"state":"processing"`) {
		t.Errorf("state: %d %s", w.Code, w.Body)
	}
	if w := ask(face, "POST", requests, bodyOf(t, req)); w.Code != http.StatusOK {
		t.Errorf("the same again: %d %s", w.Code, w.Body)
	}
	other := req
	other.OwnerID = "another-owner"
	if w := ask(face, "POST", requests, bodyOf(t, other)); w.Code != http.StatusConflict {
		t.Errorf("another request under the id: %d %s", w.Code, w.Body)
	}
	if len(duly.stored) != 1 {
		t.Errorf("%d deliveries stored, want 1", len(duly.stored))
	}
}

func TestPostWithoutAnIDMakesOne(t *testing.T) {
	duly := &fakeDuly{}
	face := NewFace(FaceOptions{Doors: duly, Tasks: duly})
	req := NewGenerator(1).Request(0)
	req.DeliveryID = ""
	for range 2 {
		if w := ask(face, "POST", requests, bodyOf(t, req)); w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if len(duly.stored) != 2 {
		t.Errorf("%d deliveries, want 2", len(duly.stored))
	}
	for id, r := range duly.stored {
		if r.DeliveryID != id || r.Validate() != nil {
			t.Errorf("stored under %s: %+v", id, r)
		}
	}
}

func TestPostRefusesBadInput(t *testing.T) {
	good := bodyOf(t, NewGenerator(1).Request(0))
	tests := []struct {
		name, body string
		status     int
		want       string
	}{
		{"empty", "", 400, `"field":"body"`},
		{"not JSON", "{", 400, `"field":"body"`},
		{"two values", good + good, 400, `"field":"body"`},
		{"an array", "[]", 400, `"field":"body"`},
		{"a number for a text", `{"ownerId":5}`, 400, `"field":"ownerId","value":"\"JSON number\"","limit":"a JSON string"`},
		{"a text for a number", `{"packageInfo":{"weight":"heavy"}}`, 400, `"field":"packageInfo.weight","value":"\"JSON string\"","limit":"a JSON number"`},
		{"a text for a flag", `{"expedited":"yes"}`, 400, `"field":"expedited","value":"\"JSON string\"","limit":"a JSON boolean"`},
		{"a bad size", strings.Replace(good, `"size":"`, `"size":"X`, 1), 400, `"field":"packageInfo.size","value":"\"X`},
		{"a bad id", strings.Replace(good, `"deliveryId":"`, `"deliveryId":"a b`, 1), 400, `"field":"deliveryId","value":"\"a b`},
		{"over the limit", `{"ownerId":"` + strings.Repeat("x", BodyBytesMax) + `"}`, 413, `"limit":"at most 65536 bytes"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			duly := &fakeDuly{}
			w := ask(NewFace(FaceOptions{Doors: duly, Tasks: duly}), "POST", requests, test.body)
			if w.Code != test.status || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %s", w.Code, w.Header().Get("Content-Type"))
			}
			if !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("body %s\nwant %s", w.Body, test.want)
			}
			if len(duly.stored) != 0 {
				t.Error("stored all the same")
			}
		})
	}
}

func TestPostRefusesAnotherContentType(t *testing.T) {
	duly := &fakeDuly{}
	r := httptest.NewRequest("POST", requests, strings.NewReader("a=b"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	NewFace(FaceOptions{Doors: duly, Tasks: duly}).ServeHTTP(w, r)
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// What Duly answers, and what the caller is told.
func TestErrorsOfTheDoor(t *testing.T) {
	req := bodyOf(t, NewGenerator(1).Request(0))
	tests := []struct {
		name   string
		err    error
		status int
	}{
		{"busy", &DoorError{429, "too many in flight"}, 429},
		{"refused", &DoorError{400, "input is 300 KiB"}, 400},
		{"taken", &DoorError{409, "taken"}, 409},
		{"too large", &DoorError{413, "large"}, 413},
		{"slow", &DoorError{408, "no answer"}, 504},
		{"broken", &DoorError{503, "stream is gone"}, 500},
		{"no broker", errors.New("no responders"), 500},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			duly := &fakeDuly{err: test.err}
			face := NewFace(FaceOptions{Doors: duly, Tasks: duly})
			for _, w := range []*httptest.ResponseRecorder{
				ask(face, "POST", requests, req), ask(face, "DELETE", requests+"/some-id", ""),
			} {
				if w.Code != test.status {
					t.Errorf("%d %s, want %d", w.Code, w.Body, test.status)
				}
				if got := w.Header().Get("Retry-After"); (got != "") != (test.status == 429) {
					t.Errorf("Retry-After %q", got)
				}
				if !strings.Contains(w.Body.String(), `"deliveryId":"`) {
					t.Errorf("no id to try again with: %s", w.Body)
				}
			}
			// Not stored, so a look-up must not say pending.
			if w := ask(face, "GET", requests+"/"+NewGenerator(1).Request(0).DeliveryID, ""); w.Code != http.StatusNotFound {
				t.Errorf("after a refusal: %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestNoAnswerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		duly := &fakeDuly{block: true}
		face := NewFace(FaceOptions{Doors: duly, Tasks: duly, Timeout: 3 * time.Second})
		began := time.Now()
		w := ask(face, "POST", requests, bodyOf(t, NewGenerator(1).Request(0)))
		if took := time.Since(began); w.Code != http.StatusGatewayTimeout || took != 3*time.Second {
			t.Errorf("%d after %v", w.Code, took)
		}
	})
}

// Reference defect 3: nothing ever looked at a cancellation.
//
// covers: D3
func TestDeleteStoresTheCancellation(t *testing.T) {
	duly := &fakeDuly{}
	face := NewFace(FaceOptions{Doors: duly, Tasks: duly})
	if w := ask(face, "DELETE", requests+"/a-1", ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(duly.cancelled) != 1 || duly.cancelled[0] != "a-1" {
		t.Errorf("cancelled %v", duly.cancelled)
	}
	for _, method := range []string{"DELETE", "GET"} {
		if w := ask(face, method, requests+"/a.1", ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s with a bad id: %d", method, w.Code)
		}
	}
	if w := ask(face, "PUT", requests+"/a-1", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %d", w.Code)
	}
}

// Reference defect 12: the health check was constantly healthy.
//
// covers: D12
func TestProbeAsksNATS(t *testing.T) {
	duly := &fakeDuly{}
	face := NewFace(FaceOptions{Doors: duly, Tasks: duly})
	if w := ask(face, "GET", "/api/probe", ""); w.Code != http.StatusOK {
		t.Errorf("healthy: %d %s", w.Code, w.Body)
	}
	duly.err = errors.New("connection closed")
	if w := ask(face, "GET", "/api/probe", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("NATS is gone: %d %s", w.Code, w.Body)
	}
}

func TestRecentForgets(t *testing.T) {
	var r recent
	now := time.Unix(1000, 0)
	r.add("a", "1.2", now)
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {recentSpan, true}, {2*recentSpan - 1, true}, {4 * recentSpan, false}} {
		if got := r.position("a", now.Add(test.after)) == "1.2"; got != test.want {
			t.Errorf("after %v: %v, want %v", test.after, got, test.want)
		}
	}
}
