package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// trail is an audit trail in memory; numbers begin at 1.
type trail struct {
	entries []operate.AuditEntry
	err     error
	errs    int // outcomes that are not stored
}

func (t *trail) Append(_ context.Context, e operate.AuditEntry) (int64, *operate.AuditEntry, error) {
	if t.err != nil {
		return 0, nil, t.err
	}
	for i := range t.entries {
		if e.Key != "" && t.entries[i].Key == e.Key {
			again := t.entries[i]
			return again.Number, &again, nil
		}
	}
	e.Number = int64(len(t.entries) + 1)
	t.entries = append(t.entries, e)
	return e.Number, nil, nil
}

func (t *trail) SetOutcome(_ context.Context, number int64, outcome string) error {
	if t.errs > 0 {
		t.errs--
		return errors.New("database away")
	}
	e := &t.entries[number-1]
	if operate.IsSettled(e.Outcome) {
		return operate.Settled(e.Outcome)
	}
	e.Outcome = outcome
	return nil
}

func (t *trail) Audit(context.Context, operate.AuditFilter) (operate.AuditPage, error) {
	return operate.AuditPage{Entries: t.entries}, nil
}

var (
	olga   = operate.Actor{Name: "olga", Role: operate.RoleOperator, From: "10.0.0.7", Via: "http"}
	viewer = operate.Actor{Name: "vera", Role: operate.RoleViewer, Via: "console"}
	d1     = operate.TaskRef{Type: "delivery", ID: "d-1"}
)

// deed is a site with actions, and a task in error at journal row 7.
type deed struct {
	*site
	*Actions
}

func newDeed(t *testing.T) *deed {
	t.Helper()
	s := newSite(t)
	d := &deed{s, NewActions(s.asks)}
	d.is(core.StateError, 7, "undo", "resubmit", "edit", "accept", "resolve")
	return d
}

func (d *deed) is(state core.State, seq int64, possible ...string) {
	d.views["d-1"] = core.View{ID: "d-1", Type: "delivery", State: state, Seq: seq, Possible: possible}
}

// act asks, and returns the refusal as such.
func (d *deed) act(t *testing.T, by operate.Actor, r operate.Request) (operate.Answer, *operate.Refusal) {
	t.Helper()
	answer, err := d.Do(t.Context(), by, d1, r)
	bad, ok := err.(*operate.Refusal)
	if err != nil && !ok {
		t.Fatalf("error %v is no refusal", err)
	}
	return answer, bad
}

// Every action is written down before it is asked, with who, why, how the task was and what is asked, and becomes a
// request with the authenticated actor about the journal row that was seen.
//
// covers: OP16, OP10
func TestActionsAreWrittenDownAndAsked(t *testing.T) {
	until := epoch.Time().Add(time.Hour)
	resting := []string{"undo", "resubmit", "edit", "accept", "resolve"}
	for _, x := range []struct {
		r       operate.Request
		state   core.State
		control core.Control
		after   string
	}{
		{operate.Request{Action: operate.ActionCancel}, core.StateProcessing, core.Control{Kind: core.EventCancel}, `{"action":"cancel"}`},
		{operate.Request{Action: operate.ActionUndo, Reason: "sent twice"}, core.StateProcessing, core.Control{Kind: core.EventUndo, Reason: "sent twice"}, `{"action":"undo"}`},
		{operate.Request{Action: operate.ActionUndo, Reason: "sent twice"}, core.StateError, core.Control{Kind: core.EventUndo, Reason: "sent twice", IfSeq: 7}, `{"action":"undo"}`},
		{operate.Request{Action: operate.ActionResubmit, Step: "drone", Until: until}, core.StateError,
			core.Control{Kind: core.EventResubmit, Step: "drone", Until: core.InstantOf(until), IfSeq: 7}, `{"action":"resubmit","step":"drone","until":"2023-11-14T23:13:20Z"}`},
		{operate.Request{Action: operate.ActionEdit, Reason: "typo", Input: []byte(`{"a":1}`), IfSeq: 7}, core.StateError,
			core.Control{Kind: core.EventEdit, Reason: "typo", Input: []byte(`{"a":1}`), IfSeq: 7},
			`{"action":"edit","if_seq":7,"input_bytes":7,"input_sha256":"015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"}`},
		{operate.Request{Action: operate.ActionAccept, Reason: "by hand", Step: "drone", Result: []byte(`true`)}, core.StateError,
			core.Control{Kind: core.EventAccept, Reason: "by hand", Step: "drone", Result: []byte(`true`), IfSeq: 7},
			`{"action":"accept","step":"drone","result_bytes":4,"result_sha256":"b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b44867e12b"}`},
		{operate.Request{Action: operate.ActionResolve, Reason: "settled", As: core.StateUndone}, core.StateError,
			core.Control{Kind: core.EventResolve, Reason: "settled", As: core.StateUndone, IfSeq: 7}, `{"action":"resolve","as":"undone"}`},
		{operate.Request{Action: operate.ActionExtend, Until: until}, core.StatePending, core.Control{Kind: core.EventExtend, Until: core.InstantOf(until)}, `{"action":"extend","until":"2023-11-14T23:13:20Z"}`},
	} {
		d := newDeed(t)
		d.is(x.state, 7, resting...)
		answer, bad := d.act(t, olga, x.r)
		if bad != nil {
			t.Errorf("%s: refused: %+v", x.r.Action, bad)
			continue
		}
		x.control.ID, x.control.Type, x.control.Actor = "d-1", "delivery", "olga@http"
		if len(d.controls) != 1 || fmt.Sprintf("%+v", d.controls[0]) != fmt.Sprintf("%+v", x.control) {
			t.Errorf("%s: asked %+v, want %+v", x.r.Action, d.controls, x.control)
		}
		want := operate.AuditEntry{
			Number: 1, At: epoch.Time(), Actor: "olga", Role: operate.RoleOperator, From: "10.0.0.7", Via: "http", Action: string(x.r.Action), Target: "task/delivery/d-1",
			Reason: x.r.Reason, Before: fmt.Appendf(nil, `{"state":%q,"seq":7}`, x.state), After: []byte(x.after), Outcome: "asked: 1.101",
		}
		if got := d.trail.entries[0]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || string(got.After) != x.after {
			t.Errorf("%s: the trail has\n%+v %s\nwant\n%+v", x.r.Action, got, got.After, want)
		}
		if answer.Audit != 1 || answer.State != x.state || answer.Position != "1.101" || answer.Outcome == "" || answer.Again {
			t.Errorf("%s: answered %+v", x.r.Action, answer)
		}
	}
}

// A request that is wrong in itself is refused with the field, the value and the limit, asks nothing, uses up no key,
// and is in the trail all the same.
//
// covers: OP10, OP16, OP17
func TestActionsRefused(t *testing.T) {
	large := json.RawMessage(jsonOf(core.InputBytesMax + 1))
	for _, x := range []struct {
		by    operate.Actor
		r     operate.Request
		code  int
		field string
		says  string
	}{
		{viewer, operate.Request{Action: operate.ActionUndo, Reason: "x"}, 403, "", "viewer"},
		{operate.Actor{}, operate.Request{Action: operate.ActionUndo, Reason: "x"}, 403, "", "operator"},
		{olga, operate.Request{Action: "delete"}, 400, "action", `"delete"`},
		{olga, operate.Request{Action: operate.ActionUndo}, 400, "reason", "undo needs one"},
		{olga, operate.Request{Action: operate.ActionUndo, Reason: " \n"}, 400, "reason", "undo needs one"},
		{olga, operate.Request{Action: operate.ActionResolve, As: core.StateUndone}, 400, "reason", "resolve needs one"},
		{olga, operate.Request{Action: operate.ActionAccept, Result: []byte(`1`)}, 400, "reason", "accept needs one"},
		{olga, operate.Request{Action: operate.ActionEdit, Input: []byte(`1`)}, 400, "reason", "edit needs one"},
		{olga, operate.Request{Action: operate.ActionCancel, Reason: strings.Repeat("x", core.WordsBytesMax+1)}, 400, "reason", "1001 bytes, want at most 1000"},
		{olga, operate.Request{Action: operate.ActionCancel, Reason: "a\x00b"}, 400, "reason", "without control characters"},
		{olga, operate.Request{Action: operate.ActionCancel, Step: "drone"}, 400, "step", "cancel takes no step"},
		{olga, operate.Request{Action: operate.ActionResubmit, Step: "a b"}, 400, "step", "a b"},
		{olga, operate.Request{Action: operate.ActionExtend}, 400, "until", "give the new deadline"},
		{olga, operate.Request{Action: operate.ActionExtend, Until: epoch.Time()}, 400, "until", "2023-11-14T22:13:20Z"},
		{olga, operate.Request{Action: operate.ActionExtend, Until: epoch.Time().Add(core.DurationMax + 1)}, 400, "until", core.DurationMax.String()},
		{olga, operate.Request{Action: operate.ActionUndo, Reason: "x", Until: epoch.Time().Add(1)}, 400, "until", "undo takes no until"},
		{olga, operate.Request{Action: operate.ActionResolve, Reason: "x", As: core.StateError}, 400, "as", `"error", want processed or undone`},
		{olga, operate.Request{Action: operate.ActionUndo, Reason: "x", As: core.StateUndone}, 400, "as", "undo takes no as"},
		{olga, operate.Request{Action: operate.ActionAccept, Reason: "x", Result: []byte(`1`), Found: core.ProbeDone}, 400, "found", "accept takes no found"},
		{olga, operate.Request{Action: operate.ActionResubmit, Found: core.ProbeInProgress}, 400, "found", `found is "in_progress", want done or absent`},
		{olga, operate.Request{Action: operate.ActionEdit, Reason: "x"}, 400, "input", "input is empty"},
		{olga, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(`{`)}, 400, "input", "not JSON"},
		{olga, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(`"\u0000"`)}, 400, "input", "NUL"},
		{olga, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: large}, 413, "input", "262145 bytes, the limit is 262144"},
		{olga, operate.Request{Action: operate.ActionUndo, Reason: "x", Input: []byte(`1`)}, 400, "input", "undo takes no input"},
		{olga, operate.Request{Action: operate.ActionAccept, Reason: "x"}, 400, "result", "result is empty"},
		{olga, operate.Request{Action: operate.ActionAccept, Reason: "x", Result: large}, 413, "result", "the limit is 65536"},
		{olga, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(`1`), Result: []byte(`1`)}, 400, "result", "edit takes no result"},
		{olga, operate.Request{Action: operate.ActionEdit, Reason: "x", Patch: []byte(`{}`)}, 400, "patch", "for many tasks"},
		{olga, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(`1`), Patch: []byte(`{}`)}, 400, "patch", "want one of them"},
		{olga, operate.Request{Action: operate.ActionUndo, Reason: "x", Patch: []byte(`{}`)}, 400, "patch", "undo takes no patch"},
		{olga, operate.Request{Action: operate.ActionCancel, IfSeq: -1}, 400, "if_seq", "-1"},
		{olga, operate.Request{Action: operate.ActionCancel, Key: strings.Repeat("k", 256)}, 400, "Idempotency-Key", "256 bytes"},
	} {
		d := newDeed(t)
		if x.r.Key == "" {
			x.r.Key = "k1"
		}
		answer, bad := d.act(t, x.by, x.r)
		if bad == nil || bad.Code != x.code || bad.Field != x.field || !strings.Contains(bad.Detail, x.says) || len(bad.Detail) > 400 {
			t.Errorf("%+v: refused %+v, want %d, field %q, %q", x.r.Action, bad, x.code, x.field, x.says)
			continue
		}
		if len(d.controls) > 0 || len(d.trail.entries) != 1 || answer.Audit != 1 {
			t.Errorf("%s: asked %+v, the trail has %+v", x.r.Action, d.controls, d.trail.entries)
			continue
		}
		if e := d.trail.entries[0]; e.Outcome != "refused: "+bad.Detail || e.Key != "" || len(e.Reason) > core.WordsBytesMax || len(e.After) > 1000 {
			t.Errorf("%s: the trail has %+v", x.r.Action, e)
		}
	}
}

// What the task's state forbids is refused with the state and what is possible in it; so is a request about a journal
// row that is not the newest any more, and one about what is no task.
//
// covers: OP22, OP16
func TestActionsRefusedByState(t *testing.T) {
	for _, x := range []struct {
		r        operate.Request
		state    core.State
		possible []string
		says     string
	}{
		{operate.Request{Action: operate.ActionAccept, Reason: "x", Result: []byte(`1`)}, core.StateProcessing, []string{"cancel", "undo", "extend"}, "is processing: only a task in error has a step to accept; possible now: cancel, undo, extend"},
		{operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(`1`)}, core.StateProcessed, []string{"undo"}, "is processed: only a task in error or undone can be resubmitted; possible now: undo"},
		{operate.Request{Action: operate.ActionResubmit}, core.StateError, []string{"undo", "resolve"}, "is error: its undo has begun: finish the undo before a resubmit; possible now: undo, resolve"},
		{operate.Request{Action: operate.ActionAccept, Reason: "x", Result: []byte(`1`)}, core.StateError, []string{"undo", "resolve"}, "is error: its undo has begun: finish the undo before a resubmit; possible now: undo, resolve"},
		{operate.Request{Action: operate.ActionExtend, Until: epoch.Time().Add(1)}, core.StateUndoing, nil, "is undoing: only a task that is pending or processing has a deadline to extend; no other action is possible now"},
		{operate.Request{Action: operate.ActionResubmit, IfSeq: 6}, core.StateError, []string{"undo", "resubmit"}, "is error: the request is about its journal row 6, and it is at row 7 by now; possible now: undo, resubmit"},
	} {
		d := newDeed(t)
		d.is(x.state, 7, x.possible...)
		_, bad := d.act(t, olga, x.r)
		if bad == nil || bad.Code != 409 || !strings.HasSuffix(bad.Detail, x.says) || len(bad.Possible) != len(x.possible) {
			t.Errorf("%s of a task that is %s: %+v, want %s", x.r.Action, x.state, bad, x.says)
			continue
		}
		if e := d.trail.entries[0]; len(d.controls) > 0 || e.Outcome != "refused: "+bad.Detail || !strings.Contains(string(e.Before), string(x.state)) {
			t.Errorf("%s: asked %+v, the trail has %+v", x.r.Action, d.controls, e)
		}
	}
	d := newDeed(t)
	delete(d.views, "d-1")
	if _, bad := d.act(t, olga, operate.Request{Action: operate.ActionCancel}); bad == nil || bad.Code != 404 || len(d.trail.entries) != 1 || d.trail.entries[0].Before != nil {
		t.Errorf("no task: %+v, %+v", bad, d.trail.entries)
	}
	d.put("d-1", "refund", `{}`)
	if _, bad := d.act(t, olga, operate.Request{Action: operate.ActionCancel}); bad == nil || bad.Code != 409 || d.trail.entries[1].Outcome == "" {
		t.Errorf("another type: %+v, %+v", bad, d.trail.entries)
	}
}

// Beside encrypted payloads none is put that anyone can read.
//
// covers: OP11
func TestActionsOnEncryptedPayloads(t *testing.T) {
	const encrypted = `{"duly.enc":"A256GCM-1","key":"k-7","data":"ZGF0YQ=="}`
	for _, x := range []struct {
		input   string
		r       operate.Request
		refused string
	}{
		{encrypted, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(`{"card":2}`)}, "input is not encrypted"},
		{encrypted, operate.Request{Action: operate.ActionAccept, Reason: "x", Result: []byte(`1`)}, "result is not encrypted"},
		{encrypted, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(encrypted)}, ""},
		{encrypted, operate.Request{Action: operate.ActionResubmit}, ""},
		{`{"card":1}`, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(`{"card":2}`)}, ""},
		{`{"card":1}`, operate.Request{Action: operate.ActionEdit, Reason: "x", Input: []byte(encrypted)}, ""},
	} {
		d := newDeed(t)
		d.is(core.StateError, 7, "undo", "resubmit", "edit", "accept", "resolve")
		view := d.views["d-1"]
		view.Input = []byte(x.input)
		d.views["d-1"] = view
		_, bad := d.act(t, olga, x.r)
		if x.refused == "" && bad != nil || x.refused != "" && (bad == nil || bad.Code != 422 || !strings.Contains(bad.Detail, x.refused) || !strings.Contains(bad.Detail, "k-7")) {
			t.Errorf("%s of %s: %+v", x.r.Action, x.input, bad)
		}
		if asked := len(d.controls); (asked == 1) != (x.refused == "") {
			t.Errorf("%s of %s: asked %d times", x.r.Action, x.input, asked)
		}
		if _, no := d.site.asks.Ask(t.Context(), controlOf(olga, d1, &x.r)); (no != nil && no.Code == 422) != (x.refused != "") {
			t.Errorf("%s of %s over NATS: %v", x.r.Action, x.input, no)
		}
	}
}

// A key is carried out once: what became of it is answered again, whatever the task has come to; for anything else it
// is refused.
//
// covers: OP16
func TestActionsOfOneKey(t *testing.T) {
	d := newDeed(t)
	r := operate.Request{Action: operate.ActionResubmit, Key: "k1"}
	first, _ := d.act(t, olga, r)
	d.is(core.StateProcessing, 8, "cancel")
	again, bad := d.act(t, olga, r)
	if bad != nil || !again.Again || again.Audit != first.Audit || again.Outcome != "asked: the scheduler that owns the task has not answered yet" || again.Position != first.Position || len(d.controls) != 1 || len(d.trail.entries) != 1 {
		t.Fatalf("again: %+v, %+v; asked %d times", again, bad, len(d.controls))
	}
	if _, bad := d.act(t, olga, operate.Request{Action: operate.ActionCancel, Key: "k1"}); bad == nil || bad.Code != 422 || bad.Field != "Idempotency-Key" || len(d.controls) != 1 {
		t.Errorf("the key for another action: %+v", bad)
	}
	if _, bad := d.act(t, olga, operate.Request{Action: operate.ActionResubmit, Step: "courier", Key: "k1"}); bad == nil || bad.Code != 422 || bad.Field != "Idempotency-Key" || len(d.controls) != 1 {
		t.Errorf("the key for another step: %+v", bad)
	}
	if answer, bad := d.act(t, olga, operate.Request{Action: operate.ActionResubmit, Until: epoch.Time().Add(time.Hour), Key: "k1"}); bad != nil || !answer.Again || len(d.controls) != 1 {
		t.Errorf("the key with another deadline: %+v", bad)
	}
	d.views["d-2"] = core.View{ID: "d-2", Type: "delivery", State: core.StateError, Seq: 3, Possible: []string{"resubmit"}}
	var refused *operate.Refusal
	if _, err := d.Do(t.Context(), olga, operate.TaskRef{Type: "delivery", ID: "d-2"}, r); !errors.As(err, &refused) || refused.Code != 422 || refused.Field != "Idempotency-Key" || len(d.controls) != 1 {
		t.Errorf("the key for another task: %v", err)
	}
	r.Key = "k2" // refused by the state, and the same key again
	_, bad = d.act(t, olga, r)
	d.is(core.StateError, 9, "resubmit")
	again, bad2 := d.act(t, olga, r)
	if bad == nil || bad2 == nil || bad2.Code != 409 || !again.Again || !strings.Contains(bad2.Detail, bad.Detail) || len(d.controls) != 1 {
		t.Errorf("refused %+v, and again %+v", bad, bad2)
	}
}

// A node that dies between the entry, the request and the outcome: the same key asks again, about the row that was
// seen first, and not when the task has moved on since.
//
// covers: OP2, OP16
func TestActionsAfterACrash(t *testing.T) {
	d := newDeed(t)
	r := operate.Request{Action: operate.ActionResubmit, Key: "k1"}
	d.trail.errs = 1 // asked, and the outcome is not stored
	if _, bad := d.act(t, olga, r); bad != nil {
		t.Fatal(bad)
	}
	answer, bad := d.act(t, olga, r) // the owner has not read it yet
	if bad != nil || !answer.Again || len(d.controls) != 2 || d.controls[1].IfSeq != 7 || d.trail.entries[0].Outcome != "asked: 1.101" {
		t.Fatalf("again: %+v, %+v; asked %+v", answer, bad, d.controls)
	}

	d = newDeed(t)
	d.trail.errs = 1
	if _, bad := d.act(t, olga, r); bad != nil {
		t.Fatal(bad)
	}
	d.is(core.StateError, 9, "undo", "resubmit") // it was started again, and failed again
	answer, bad = d.act(t, olga, r)
	if bad != nil || !answer.Again || len(d.controls) != 1 || answer.Outcome == "" {
		t.Fatalf("again: %+v, %+v; asked %+v", answer, bad, d.controls)
	}

	d = newDeed(t)
	d.trail.errs = 1
	if _, bad := d.act(t, olga, r); bad != nil {
		t.Fatal(bad)
	}
	d.is(core.StateProcessing, 8, "cancel") // it was started again, which forbids it now
	answer, bad = d.act(t, olga, r)
	if outcome := d.trail.entries[0].Outcome; bad != nil || !answer.Again || len(d.controls) != 1 || answer.Outcome == "" || outcome != "" {
		t.Fatalf("again, when it goes: %+v, %+v; asked %+v, and the trail says %q", answer, bad, d.controls, outcome)
	}
}

// Who cancels is named by the journal as by the trail, in which its outcome is found by that name.
//
// covers: OP16
func TestCancelIsByWhomTheTrailNames(t *testing.T) {
	r := httptest.NewRequest(http.MethodDelete, "/v1/tasks/delivery/d-1", nil)
	for _, x := range []struct {
		by   operate.Actor
		want string
	}{
		{operate.Actor{Name: "olga", Role: operate.RoleOperator, Via: "http"}, "olga@http"},
		{operate.Actor{Name: "olga", Role: operate.RoleOperator, Via: "console"}, "olga@console"},
		{operate.Actor{Name: auth.LocalActor, Role: operate.RoleOperator, Via: "http"}, "local@http"},
		{operate.Actor{Name: auth.LocalActor, Role: operate.RoleAdmin, Via: "http", Open: true}, "192.0.2.1@http"},
	} {
		if got := actorOf(r.WithContext(operate.WithActor(r.Context(), x.by))); got != x.want {
			t.Errorf("%+v is %s, want %s", x.by, got, x.want)
		}
	}
}

// What may be stored, or may be asked again, is no refusal in the trail.
func TestActionsWhileStoresAreAway(t *testing.T) {
	r := operate.Request{Action: operate.ActionResubmit, Key: "k1"}
	d := newDeed(t)
	d.askErr = errors.New("no answer")
	_, bad := d.act(t, olga, r)
	if bad == nil || bad.Code != 503 || bad.RetryMS == 0 || d.trail.entries[0].Outcome != "" {
		t.Fatalf("%+v, %+v", bad, d.trail.entries)
	}
	d.askErr = nil
	if answer, bad := d.act(t, olga, r); bad != nil || !answer.Again || len(d.controls) != 2 || d.trail.entries[0].Outcome != "asked: 1.101" {
		t.Fatalf("again: %+v, %+v", bad, d.trail.entries)
	}
	d.err = errors.New("store away")
	r.Key = ""
	if _, bad := d.act(t, olga, r); bad == nil || bad.Code != 503 || d.trail.entries[1].Outcome != "" || len(d.controls) != 2 {
		t.Errorf("without a key: %+v, %+v", bad, d.trail.entries)
	}
	d.err, d.trail.err = nil, errors.New("trail away")
	if _, bad := d.act(t, olga, r); bad == nil || bad.Code != 503 || len(d.controls) != 2 {
		t.Errorf("without a trail: %+v, asked %d", bad, len(d.controls))
	}
	if _, bad := d.act(t, viewer, r); bad == nil || bad.Code != 403 {
		t.Errorf("a refusal without a trail: %+v", bad)
	}
}

// The core's words for what is possible are the actions' names, and every action is possible somewhere.
func TestPossibleWordsAreActions(t *testing.T) {
	p := core.Plan{Name: "order", Version: 1, Steps: []core.Step{{Name: "a", Agent: "a", Undoable: true, OnExhausted: core.PolicyError}}}.WithDefaults()
	seen := map[operate.Action]bool{}
	note := func(task *core.Task) {
		for _, word := range task.Possible(&p, epoch+1) {
			seen[operate.Action(word)] = true
		}
	}
	var out core.Outcome
	task := core.Task{ID: "t1", Type: "order", CreatedAt: epoch}
	core.Birth(&p, &task, &core.Event{At: epoch}, &out)
	note(&task)
	if err := core.Apply(&p, &task, &core.Event{Kind: core.EventReply, At: epoch + 1, Seq: 1, Code: core.CodeRefused}, &out); err != nil {
		t.Fatal(err)
	}
	note(&task)
	for action := range kinds {
		if !seen[action] && action != operate.ActionMigrate && action != operate.ActionSignal { // which depend on stored versions, and on the steps
			t.Errorf("%s is possible nowhere", action)
		}
	}
	for action := range seen {
		if kinds[action] == 0 {
			t.Errorf("%q is no action", action)
		}
	}
}
