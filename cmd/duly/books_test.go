package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/books"
	"duly.dev/duly/internal/operate"
)

// TestBooks: the command says what the API says, fails where the books are not closed, waits for a comparison that it asks
// for, and repairs.
//
// covers: OP23
func TestBooks(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("DULY_TOKEN", "")
	w := apitest.New()
	handler, err := w.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	server := httptest.NewServer(apitest.As(operate.RoleOperator, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // the leader has compared by the second look
			w.Lock()
			var asked operate.BooksAsked
			if json.Unmarshal(w.Documents[operate.SettingBooksAsked], &asked) == nil {
				if looks++; looks > 1 {
					w.Compared.Answers, w.Compared.Total, w.Compared.Closed, w.Haunting = asked.ID, 0, true, nil
				}
			}
			w.Unlock()
		}
		handler.ServeHTTP(rw, r)
	})))
	t.Cleanup(server.Close)
	run := func(code int, args []string, says ...string) string {
		t.Helper()
		got, out, errs := command(t, "", append(append([]string{"books"}, args...), "-s", server.URL)...)
		if got != code {
			t.Errorf("duly books %v: exit %d, want %d\n%s%s", args, got, code, out, errs)
		}
		for _, text := range says {
			if !strings.Contains(out+errs, text) {
				t.Errorf("duly books %v does not say %q:\n%s%s", args, text, out, errs)
			}
		}
		return out
	}
	run(1, nil, "Books not closed at 12:00: 2 of 12 effects do not agree with the journal. 1 effect of unfinished tasks will be compared once the tasks have ended.\n", "open  effect_of_undone  t-4/charge/1 at payment.charge, task t-4 of type order: the effect stands")
	run(1, []string{"--limit", "1"}, `more: --after "payment.charge gone/charge/0"`)
	run(1, []string{"-o", "csv"}, "status,kind,key", "open,effect_of_none,gone/charge/0,payment.charge")
	run(1, []string{"-o", "json"}, `"sentence":`)
	run(2, []string{"--repair", "accept"}, "want --effect and --agent")
	run(2, []string{"--now", "--direct"}, "want one of them")
	run(2, []string{"--reason", "x"}, "go with --repair")
	run(0, []string{"--repair", "undo", "--agent", "payment.charge", "--effect", "t-4/charge/1", "--reason", "seen to"}, "t-4/charge/1: ")
	if len(w.Asked) != 1 || w.Asked[0].Step != "charge" || w.Asked[0].IfSeq != 3 || w.Asked[0].Reason != "seen to" || w.Asked[0].Key == "" {
		t.Errorf("asked %+v", w.Asked)
	}
	run(0, []string{"--repair", "accept", "--agent", "payment.charge", "--effect", "gone/charge/0", "--reason", "paid back"}, "recorded as explained")
	run(1, []string{"--status", "accepted"}, "accepted  effect_of_none  gone/charge/0", "accept by the-operator", "paid back")
	run(0, []string{"--now"}, "Books closed at 12:00: the journal and the services agree on 12 effects. 1 effect of unfinished tasks will be compared once the tasks have ended.\n")
	if looks < 2 {
		t.Errorf("it looked %d times for the comparison that it had asked for", looks)
	}
}

// TestGhostsOfTheDemo: what journal and services do not agree on makes the demo fail, also what is counted and not named.
//
// covers: T10
func TestGhostsOfTheDemo(t *testing.T) {
	compared := &books.Report{Ghosts: []operate.Ghost{{Kind: operate.GhostDoubled, Task: "t1"}, {Kind: operate.GhostMissing, Task: "t2", Key: "t2/drone/0", Agent: "drone.schedule", Text: "it is missing"}}}
	compared.Total, compared.Kinds = 7, map[operate.GhostKind]int64{operate.GhostDoubled: 3, operate.GhostMissing: 4}
	var r drone.Report
	addGhosts(&r, compared)
	if r.Clean() || r.Doubled != 3 || r.HalfDone != 4 || len(r.Examples) != 2 || r.Examples[1].Why != "t2/drone/0 at drone.schedule: it is missing" {
		t.Errorf("%+v", r)
	}
}
