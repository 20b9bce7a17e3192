package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"duly.dev/duly/internal/taskform"
)

// everyKind is a task with a step of each kind, as the API answers.
const everyKind = `{"id":"o-1~rows~7","type":"order","plan_version":1,"state":"pending","parent":{"id":"o-1","type":"batch"},"parents":[{"id":"o-1","type":"batch"},{"id":"monday","type":"day"}],"failures":1,
"created_at":"2030-01-01T00:00:00Z","start_at":"2030-01-01T01:00:00Z","why":"Step approve waits for its signal, until 2030-01-01T02:00:00Z.","steps":[
{"name":"charge","agent":"payment.charge","status":"done","attempt":2,"by":"i-1@payment.charge","result":{"paid":1200},"at":"2030-01-01T01:00:01Z"},
{"name":"night","kind":"wait","agent":"","status":"running","attempt":1,"complete_by":"2030-01-01T01:30:00Z","at":"2030-01-01T01:00:01Z"},
{"name":"approve","kind":"signal","agent":"","status":"running","attempt":1,"complete_by":"2030-01-01T02:00:00Z","ask":"0.12ab","at":"2030-01-01T01:00:01Z"},
{"name":"rows","kind":"each","agent":"","status":"running","attempt":1,"at":"2030-01-01T01:00:01Z","children":{"type":"row","count":9,"born":6,"running":2,"processed":2,"undone":1,"error":1}},
{"name":"parcel","kind":"task","agent":"","status":"waiting","attempt":0,"children":{"type":"parcel","born":0,"running":0,"processed":0,"undone":0,"error":0}},
{"name":"express","agent":"courier.book","when":"input.express","status":"skipped","attempt":0,"at":"2030-01-01T01:00:01Z"},
{"name":"coupon","agent":"coupons","optional":true,"status":"skipped","attempt":3,"error":"code 422: used up","at":"2030-01-01T01:00:01Z"},
{"name":"boss","kind":"signal","agent":"","when":"input.dear","status":"signalled","attempt":0,"result":true,"at":"2030-01-01T01:00:01Z"},
{"name":"ship","agent":"carrier","status":"failed","attempt":3,"error":"no answer by its complete-by","key_until":"2030-01-02T01:00:00Z","at":"2030-01-01T01:00:01Z"},
{"name":"thanks","agent":"mail","when":"results.charge.paid > 1000","optional":true,"status":"waiting","attempt":0}]}`

// wide is a terminal of 80 cells.
type wide struct{ bytes.Buffer }

// TerminalWidth makes it one.
func (*wide) TerminalWidth() int { return 80 }

// TestEveryKindIsShown: get and why show each kind of step, in a pipe and at a terminal of 80 cells.
func TestEveryKindIsShown(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	var shown task
	if err := json.Unmarshal([]byte(everyKind), &shown); err != nil {
		t.Fatal(err)
	}
	var pipe bytes.Buffer
	var terminal wide
	shown.print(&pipe)
	pipe.WriteString("---- why\n")
	shown.explain(&pipe)
	shown.print(&terminal)
	for line := range strings.Lines(terminal.String()) {
		if n := ansi.StringWidth(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line of %d cells: %s", n, line)
		}
	}
	got := pipe.String() + "---- at 80 cells\n" + terminal.String()
	const file = "testdata/kinds.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; it is now:\n%s", file, got)
	}
}

// TestChildrenAreListed: the children of a task are its list by parent; a task that is not known has none to list.
func TestChildrenAreListed(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/tasks":
			asked = r.URL.Query().Encode()
			_, _ = w.Write([]byte(`{"tasks":[{"id":"o-1~rows~0","type":"row","state":"error","created_at":"2030-01-01T00:00:00Z","parent":{"id":"o-1"}}]}`))
		case "/v1/tasks/order/o-1":
			_, _ = w.Write([]byte(`{"id":"o-1","type":"order"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"status":404,"detail":"no task"}`))
		}
	}))
	defer server.Close()
	code, out, errs := command(t, "", "task", "children", "order", "o-1", "--state", "error", "--limit", "7", "-s", server.URL)
	if code != 0 || asked != "limit=7&parent=o-1&state=error" || !strings.Contains(out, "PARENT") || !strings.Contains(out, "o-1~rows~0  error") || strings.Contains(out, "START") {
		t.Errorf("exit %d, asked %s: %s%s", code, asked, out, errs)
	}
	if code, _, errs := command(t, "", "task", "children", "order", "o-2", "-s", server.URL); code != exitNotFound {
		t.Errorf("of an unknown task: exit %d %s", code, errs)
	}
	if _, _, errs := command(t, "", "list", "--parent", "o-1", "-s", server.URL); asked != "limit=50&parent=o-1" || errs != "" {
		t.Errorf("list asked %s %s", asked, errs)
	}
}

// TestWhyTellsConditions: what was decided of each condition follows the sentence, with the values of its terms; where that
// is not to be had the sentence stands, and says so.
func TestWhyTellsConditions(t *testing.T) {
	answer := `{"conditions":[{"step":"express","when":"input.express","holds":false,"row":4,"terms":[{"term":"input.express","value":"false"}]},
		{"step":"thanks","when":"results.charge.paid > 1000","terms":[]},
		{"step":"gift","when":"input.gift.size > 2","holds":true,"row":5,"terms":[{"term":"input.gift.size","failed":"no such key"}]}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/conditions"):
			_, _ = w.Write([]byte(everyKind))
		case answer == "":
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	defer server.Close()
	why := func() string {
		t.Helper()
		code, out, errs := command(t, "", "why", "order", "o-1~rows~7", "-s", server.URL)
		if code != exitDone {
			t.Fatalf("exit status %d: %s", code, errs)
		}
		return out
	}
	got := why()
	for _, want := range []string{"express: begins if input.express; it did not, as journal row 4 shows\n  input.express = false\n", "gift: begins if input.gift.size > 2; it did, as journal row 5 shows\n  input.gift.size = no value: no such key\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "thanks: begins if results.charge.paid > 1000; it did") {
		t.Errorf("a condition that was not asked was decided:\n%s", got)
	}
	answer = ""
	if got := why(); !strings.Contains(got, "Step approve waits") || !strings.Contains(got, "How its conditions were decided cannot be shown: ") {
		t.Errorf("without conditions:\n%s", got)
	}
}

// TestAskedWhole: who answers a signal step has seen the whole input, or says which ask is meant.
//
// covers: OP23
func TestAskedWhole(t *testing.T) {
	of := func(input string) *task {
		return &task{taskform.Task{Type: "payout", ID: "p-1", Input: json.RawMessage(input), Steps: []taskform.Step{{Name: "approve", Ask: "0.12ab"}}}}
	}
	var b strings.Builder
	token, err := of(`{"cents":1}`).asked(&b, "approve")
	if token != "0.12ab" || err != nil || !strings.Contains(b.String(), `{"cents":1}`) {
		t.Errorf("%q %v: %s", token, err, b.String())
	}
	long := `{"note":"` + strings.Repeat("x", askedBytes) + `","cents":100000000}`
	token, err = of(long).asked(&b, "approve")
	if token != "" || exitOf(err) != exitUse || !strings.Contains(err.Error(), "duly get payout/p-1") {
		t.Errorf("%q %v", token, err)
	}
}
