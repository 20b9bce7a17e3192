package top

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 25, 14, 5, 0, 0, time.UTC)

// overview is one where everything needs an operator.
func overview() operate.Overview {
	o := operate.Overview{
		At: at, Errors: operate.Count{N: 10000, AtLeast: true}, Groups: operate.Count{N: 3}, AtRisk: operate.Count{N: 17},
		Operations: []operate.Operation{{ID: "op-1", State: operate.OperationBraked, Action: operate.ActionResubmit, Selection: "a group", Tasks: 4312, Tally: operate.Tally{Done: 20, FailedAgain: 11, Waiting: 4281},
			Why: "wave 3: 40 % failed alike"}},
		Signals:  operate.Signals{Tasks: operate.Count{N: 12}, Steps: operate.Count{N: 14}, Near: operate.Count{N: 3}, Since: &at},
		Troubles: []operate.Trouble{{Name: "streams", Text: "a stream or bucket does not work", Since: at}},
		Counts:   []operate.StateCount{{State: core.StateProcessed, Tasks: operate.Count{N: 1234567}}, {State: core.StateError, Tasks: operate.Count{N: 10000, AtLeast: true}}},
	}
	o.Needs = slices.Concat(operate.TroubleNeeds(at, o.Troubles),
		operate.FlowNeeds(at.Add(-20*time.Second), []operate.Agent{{Name: "payment.charge", Gone: true, Waiting: operate.Count{N: 1248}}, {Name: "parcel.send", Gone: true, Waiting: operate.Count{N: 1}}}, nil, nil),
		operate.ErrorNeeds(at, operate.Groups{All: o.Groups, Tasks: o.Errors, Groups: []operate.Group{{ID: "g1", GroupKey: operate.GroupKey{Type: "order", Step: "charge"}, Example: "card refused\x1b[2J\u202e", Tasks: operate.Count{N: 9000}, Last: at}}}),
		operate.OperationNeeds(at, o.Operations), operate.AnswerNeeds(at, 5*time.Minute, &o.Signals))
	return o
}

// node answers as the API does.
func node(t *testing.T, o operate.Overview, failures int) *client.Client {
	t.Helper()
	answer := func(w http.ResponseWriter, body any) {
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/overview", func(w http.ResponseWriter, _ *http.Request) { answer(w, Overview{Overview: o, AgeMS: 17_400}) })
	mux.HandleFunc("/v1/stats", func(w http.ResponseWriter, _ *http.Request) {
		var samples []operate.Sample
		for i := range 30 {
			samples = append(samples, operate.Sample{At: at.Add(time.Duration(i) * 2 * time.Second), Created: int64(i * i * 10), Ended: int64(i * i * 9), Backlog: operate.Count{N: int64(i), AtLeast: true}, P50MS: 1.25, P99MS: 80})
		}
		answer(w, map[string]any{"samples": samples})
	})
	mux.HandleFunc("/v1/failures", func(w http.ResponseWriter, _ *http.Request) {
		groups := []operate.Group{}
		for i := range failures {
			groups = append(groups, operate.Group{GroupKey: operate.GroupKey{Type: "order", State: core.StateError, Step: "charge"}, ID: fmt.Sprintf("g%02d", i),
				Tasks: operate.Count{N: 4312}, Example: "card refused\x1b[2J", Last: at})
		}
		answer(w, operate.Groups{Groups: groups, At: at})
	})
	mux.HandleFunc("/v1/operations", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"operations": o.Operations}) })
	mux.HandleFunc("/v1/agents", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		answer(w, map[string]any{"status": 503, "detail": "agents: not served by this node"})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &client.Client{Base: s.URL, Timeout: 5 * time.Second}
}

// fits fails the test if the screen is larger than the terminal.
func fits(t *testing.T, m *model) string {
	t.Helper()
	screen := m.View().Content
	lines := strings.Split(screen, "\n")
	if len(lines) > m.height {
		t.Errorf("%d lines on %d", len(lines), m.height)
	}
	for _, line := range lines {
		if w := ansi.StringWidth(line); w > m.width {
			t.Errorf("a line of %d on %d: %s", w, m.width, line)
		}
	}
	return ansi.Strip(screen)
}

func has(t *testing.T, screen string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(screen, w) {
			t.Errorf("%q is not on\n%s", w, screen)
		}
	}
}

func press(m *model, code rune, text string) tea.Cmd {
	_, cmd := m.Update(tea.KeyPressMsg{Code: code, Text: text})
	return cmd
}

// TestPanes: what is on each pane at 80×24, in the API's words; and keys move between them.
//
// covers: OP23
func TestPanes(t *testing.T) {
	c := node(t, overview(), 40)
	m := newModel(c.Base, time.Second, false)
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	m.look = func() tea.Msg { return look(t.Context(), c) }
	if _, cmd := m.Update(m.Init()()); cmd == nil {
		t.Fatal("it does not look again")
	}
	has(t, fits(t, m), "needs you  looked at 14:05:00Z, 17 s ago", "✗ This node: streams (duly doctor)", "a stream or bucket does not work, since 2026-11-25 14:05:00Z", "✗ 2 agents gone: 1,249 tasks wait, looked at 14:04:40Z (duly agents)", "1,248  payment.charge: no instance answers",
		"✗ ≥ 10,000 tasks in error, in 3 groups", "9,000  order · step charge: card refused\uFFFD[2J\uFFFD", "2 more, with ≥ 1,000 tasks", "! 1 operation on hold: 4,281 tasks not started yet", "[1 overview]", "q quit")
	for range 2 {
		press(m, tea.KeyPgDown, "")
	}
	has(t, fits(t, m), "! 12 tasks waiting for an answer: 3 of them must be answered within 5 min", "created", "ended", "backlog", "≥ 29 tasks", "p99_ms", "80 ms", "▁", "█", "processed 1,234,567", "error ≥ 10,000")
	press(m, '2', "2")
	screen := fits(t, m)
	has(t, screen, "[2 failures 40]", "ID", "TASKS", "g00", "4,312", "error", "charge", "card refused\uFFFD[2J")
	if strings.Contains(screen, "g39") {
		t.Error("40 rows on 24 lines")
	}
	for range 3 {
		press(m, tea.KeyPgDown, "")
	}
	has(t, fits(t, m), "g39", "duly failures repair ID")
	press(m, tea.KeyTab, "")
	has(t, fits(t, m), "[3 operations 1]", "DONE", "FAILED AGAIN", "braked", "op-1")
	press(m, tea.KeyTab, "")
	has(t, fits(t, m), "[4 agents]", "agents: not served by this node")
	press(m, tea.KeyTab, "")
	has(t, fits(t, m), "[1 overview]")
	press(m, '?', "?")
	has(t, fits(t, m), "look now", "hold", "pane before")
	if cmd := press(m, 'q', "q"); cmd == nil || fmt.Sprint(cmd()) != fmt.Sprint(tea.Quit()) {
		t.Error("q does not quit")
	}
}

// TestEverySize: no line is longer than the terminal and no pane higher, down to where it says that it is too small.
func TestEverySize(t *testing.T) {
	c := node(t, overview(), 40)
	m := newModel(c.Base, time.Second, false)
	m.Update(look(t.Context(), c))
	for _, size := range [][2]int{{200, 60}, {80, 24}, {60, 12}, {widthLeast, heightLeast}, {30, 8}, {1, 1}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		for pane := range panes {
			m.pane = pane
			for _, m.help.ShowAll = range []bool{false, true} {
				fits(t, m)
			}
		}
	}
	has(t, fits(t, m), "1")
}

// TestNothingIsGreenAndSaysWhen: an engine that needs no one says so, with the time of the look.
func TestNothingIsGreenAndSaysWhen(t *testing.T) {
	c := node(t, operate.Overview{At: at}, 0)
	m := newModel(c.Base, time.Second, true)
	m.Update(look(t.Context(), c))
	screen := m.View().Content
	has(t, screen, "looked at 14:05:00Z, 17 s ago", "nothing")
	if strings.Contains(screen, "\x1b[3") {
		t.Errorf("colours though there shall be none: %q", screen)
	}
	press(m, '2', "2")
	has(t, fits(t, m), "no task has failed")
}

// TestOldNumbersAreCalledOld: with the node away the last numbers stay, with their time and the reason, and come back.
func TestOldNumbersAreCalledOld(t *testing.T) {
	c := node(t, overview(), 3)
	m := newModel(c.Base, time.Second, false)
	m.Update(seen{at: at, err: &client.UnreachableError{Address: c.Base, Err: errors.New("connection refused")}})
	has(t, fits(t, m), "not reached", "connection refused")
	m.Update(look(t.Context(), c))
	seenAt := clock(m.last.at)
	m.Update(seen{at: at, err: &client.UnreachableError{Address: c.Base, Err: errors.New("connection refused")}})
	has(t, fits(t, m), "not reached; seen at "+seenAt, "connection refused", "≥ 10,000 tasks in error")
	m.Update(seen{at: at, err: &client.Problem{Status: 401, Detail: "this needs a token"}})
	has(t, fits(t, m), "refused; seen at", "this needs a token (401)")
	m.Update(look(t.Context(), c))
	if screen := fits(t, m); strings.Contains(screen, "refused;") || strings.Contains(screen, "not reached") {
		t.Errorf("still\n%s", screen)
	}
}

// TestOneLookAtATime: a key does not begin a second look, nor a second row of ticks; held, it looks at nothing.
func TestOneLookAtATime(t *testing.T) {
	m := newModel("http://x", time.Second, false)
	looks := 0
	m.look = func() tea.Msg { looks++; return seen{at: at} }
	first := m.Init()
	if press(m, 'r', "r") != nil {
		t.Error("a second look while one is under way")
	}
	m.Update(first())
	again := press(m, 'r', "r")
	if again == nil {
		t.Fatal("r does not look")
	}
	m.Update(again())
	if _, cmd := m.Update(tick{1}); cmd != nil {
		t.Error("the tick of the look before counts")
	}
	_, cmd := m.Update(tick{2})
	if cmd == nil {
		t.Fatal("the tick does not look")
	}
	m.Update(cmd())
	press(m, 'p', "p")
	has(t, fits(t, m), "held")
	if _, cmd := m.Update(tick{3}); cmd != nil {
		t.Error("it looks though it is held")
	}
	if press(m, 'p', "p") == nil || looks != 3 {
		t.Errorf("it does not go on after %d looks", looks)
	}
}

// TestStatus: the same lines once, without a terminal.
//
// covers: O3
func TestStatus(t *testing.T) {
	var b strings.Builder
	Status(&b, &Overview{Overview: overview(), AgeMS: 1999})
	has(t, b.String(), "✗ This node: streams", "! 12 tasks waiting for an answer: 3 of them must be answered within 5 min (duly list --waits signal)\n", "processed  1,234,567", "looked at 14:05:00Z\n")
	b.Reset()
	Status(&b, &Overview{Overview: operate.Overview{At: at}, AgeMS: 2000})
	has(t, b.String(), "nothing needs your attention", "looked at 14:05:00Z, 2 s ago\n")
}

var negative = regexp.MustCompile(` [-−]\d`)

// TestAfterARestart: samples whose totals have gone back, stand still or end more than they began, as a restart, a restored
// database and resubmitted tasks make them, are drawn on every width; a backlog is never negative.
//
// covers: O4
func TestAfterARestart(t *testing.T) {
	sample := func(second int, created, ended int64) operate.Sample {
		return operate.Sample{At: at.Add(time.Duration(second) * time.Second), Created: created, Ended: ended, P50MS: 1, P99MS: 2}
	}
	for name, samples := range map[string][]operate.Sample{
		"resubmitted": {sample(0, 2000, 1180), sample(2, 2010, 1190), sample(4, 2020, 3100)},
		"gone back":   {sample(0, 900, 800), sample(2, 10, 800), sample(4, 20, 10), sample(4, 20, 10), sample(3, 5, 5)},
		"one":         {sample(0, 5, 6)},
		"none":        nil,
	} {
		m := newModel("http://x", time.Second, true)
		m.Update(seen{at: at, overview: Overview{Overview: overview()}, samples: samples})
		for _, width := range []int{widthLeast, 80, 400} {
			m.Update(tea.WindowSizeMsg{Width: width, Height: 60})
			if screen := fits(t, m); negative.MatchString(screen) {
				t.Errorf("%s at %d: a negative number on\n%s", name, width, screen)
			}
		}
	}
}
