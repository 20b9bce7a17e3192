package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/internal/conformance"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/option"
	"duly.dev/duly/internal/pause"
)

const agentName = "kit.plain"

// quick are options for a test; slow is an input that a plain agent works long on.
func quick(calls int) conformance.Options {
	return conformance.Options{Agent: agentName, Calls: calls, SlowInput: []byte(`{"slow_ms":30}`), LargeInput: []byte(`{"result_bytes":65537}`), CallTime: 2 * time.Second, Silence: 150 * time.Millisecond, Slack: 400 * time.Millisecond}
}

// play runs the kit.
func play(t *testing.T, nc *nats.Conn, o conformance.Options) *conformance.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	report, err := conformance.Run(ctx, nc, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// tells logs what a report has, for a test that failed.
func tells(t *testing.T, report *conformance.Report) {
	t.Helper()
	for _, f := range report.Findings {
		t.Logf("%-28s %-4s %-10s %-12s %s", f.Check, f.Rule, f.State, f.By, f.Why)
		for _, e := range f.Evidence {
			t.Logf("    %s, %s: %s: %q", e.What, e.Subject, e.Sent, e.Came)
		}
	}
	t.Logf("left: %d, %q", report.Left, report.LeftKeys)
}

// allHeld fails unless every rule is held.
func allHeld(t *testing.T, report *conformance.Report) {
	t.Helper()
	judged := map[string]bool{}
	for _, f := range report.Findings {
		judged[f.Rule] = true
	}
	if len(judged) != len(conformance.Rules) || report.Broken+report.NotJudged+report.Aside > 0 || report.Held != len(report.Findings) || report.Left > 0 {
		t.Errorf("%d rules: %d held, %d broken, %d not judged, %d left", len(judged), report.Held, report.Broken, report.NotJudged, report.Left)
		tells(t, report)
	}
}

// TestPlainAgentHolds: an agent of a few lines over a NATS client, as the guide has it, holds all rules, and nothing of the
// run is left in its store.
func TestPlainAgentHolds(t *testing.T) {
	url := serve(t)
	s := newStore()
	start(t, url, agentName, "", s)
	start(t, url, agentName, "", s) // a second instance
	nc := dial(t, url)
	for name, target := range map[string]string{"effects seen": "effects." + agentName, "by probes and answers": ""} {
		t.Run(name, func(t *testing.T) {
			o := quick(1000)
			if target != "" {
				var err error
				if o.Effects, err = conformance.EffectsAt(nc, target); err != nil {
					t.Fatal(err)
				}
			}
			report := play(t, nc, o)
			allHeld(t, report)
			if n := s.left(); n != 0 {
				t.Errorf("%d effects are left", n)
			}
			if report.Messages < 1000 || !strings.HasPrefix(report.Tasks, "conformance-") {
				t.Errorf("%d messages, tasks %s", report.Messages, report.Tasks)
			}
		})
	}
}

// TestRefusalsAreNoFault: an agent that refuses every fourth key, as a service may refuse customers, breaks nothing.
func TestRefusalsAreNoFault(t *testing.T) {
	url := serve(t)
	s := newStore()
	start(t, url, agentName, refusesSome, s)
	nc := dial(t, url)
	o := quick(100)
	var err error
	if o.Effects, err = conformance.EffectsAt(nc, "effects."+agentName); err != nil {
		t.Fatal(err)
	}
	allHeld(t, play(t, nc, o))
	if n := s.left(); n != 0 {
		t.Errorf("%d effects are left", n)
	}
}

// TestSlowAgentIsNotBroken: an agent that has long to do with many calls answers none of them in time, and is not broken by
// that: the check waits for it to answer again.
func TestSlowAgentIsNotBroken(t *testing.T) {
	url := serve(t)
	start(t, url, agentName, oneByOne, newStore())
	o := quick(1000)
	o.Only, o.SlowInput, o.LargeInput, o.CallTime, o.Slack, o.Silence = []string{"P13"}, nil, nil, 300*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	if report := play(t, dial(t, url), o); report.Broken+report.NotJudged > 0 || report.Held == 0 {
		t.Errorf("%d broken, %d not judged", report.Broken, report.NotJudged)
		tells(t, report)
	}
}

// bank is a service behind an agent of package duly.
type bank struct {
	mu       sync.Mutex
	payments map[string]int
}

func (b *bank) change(key string, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.payments[key] += by
}

func (b *bank) count(_ context.Context, key string) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.payments[key], nil
}

type (
	order   struct{ Cents, SlowMS int }
	payment struct{ ID string }
)

// TestGoAgentHolds: an agent of package duly with a ledger holds all rules.
func TestGoAgentHolds(t *testing.T) {
	url := serve(t)
	b := &bank{payments: map[string]int{}}
	agent, err := duly.NewAgent(dial(t, url), duly.WithLedger(duly.NewMemoryLedger(0, 0)), duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	err = duly.NewStep[order, payment]("charge", "kit.go").Serve(agent,
		func(ctx context.Context, call duly.Call[order]) (payment, error) {
			if err := pause.For(ctx, time.Duration(call.Input.SlowMS)*time.Millisecond); err != nil {
				return payment{}, err
			}
			b.change(call.Key, 1)
			return payment{ID: call.Key}, nil
		},
		func(_ context.Context, undo duly.Undo[order, payment]) error {
			if undo.Known {
				b.change(undo.Key, -1)
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	nc := dial(t, url)
	listening(t, nc, "duly.probe.kit.go")
	o := quick(1000)
	o.Agent, o.Step, o.Input, o.SlowInput, o.LargeInput, o.Effects, o.Probes = "kit.go", "charge", []byte(`{"Cents":1999}`), []byte(`{"SlowMS":30}`), nil, b.count, true
	allHeld(t, play(t, nc, o))
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, n := range b.payments {
		if n != 0 {
			t.Errorf("%d payments are left of %s", n, key)
		}
	}
}

// listening waits until there is a subscription of a subject.
func listening(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	eventually(t, "a subscription of "+subject, func() bool {
		_, err := nc.Request(subject, nil, time.Second)
		return !errors.Is(err, nats.ErrNoResponders)
	})
}

// faults are the planted ones, with the rule that each breaks.
var faults = []struct {
	fault fault
	rule  string
}{
	{doubles, "P1"}, {forgetsRounds, "P1"}, {otherResult, "P2"}, {races, "P3"}, {refusesConcurrent, "P3"}, {lateDoActs, "P4"}, {lateDoOtherCode, "P4"},
	{undoLeaves, "P5"}, {undoOnce, "P6"}, {undoOnlyKnown, "P7"}, {undoOvertakes, "P8"}, {largeResult, "P9"}, {sendsLarge, "P9"}, {largeSilent, "P9"}, {largeAgain, "P9"},
	{diesOfGarbage, "P10"}, {hangsOnGarbage, "P10"}, {takesGarbage, "P10"}, {takesNameless, "P10"}, {retriesGarbage, "P10"}, {answersLate, "P11"},
	{answersSlowly, "P11"}, {strict, "P12"}, {answersTwice, "P13"}, {noGroup, "P14"}, {otherGroup, "P14"},
	{probeSaysDone, "P15"}, {probeSaysAbsent, "P15"}, {probeActs, "P15"}, {probeOverlooks, "P15"}, {probeForgets, "P15"},
}

// TestFaultsAreNamed: each planted fault breaks its rule and no other, and every rule has a fault.
func TestFaultsAreNamed(t *testing.T) {
	planted := map[string]bool{}
	for _, f := range faults {
		planted[f.rule] = true
		t.Run(strings.ReplaceAll(string(f.fault), " ", "_"), func(t *testing.T) {
			t.Parallel()
			url := serve(t)
			s := newStore()
			start(t, url, agentName, f.fault, s)
			if f.fault == noGroup {
				start(t, url, agentName, f.fault, s)
			}
			nc := dial(t, url)
			o := quick(50)
			if f.fault == answersSlowly {
				o.SlowInput = []byte(`{"slow_ms":600}`)
			}
			var err error
			if o.Effects, err = conformance.EffectsAt(nc, "effects."+agentName); err != nil {
				t.Fatal(err)
			}
			report := play(t, nc, o)
			var ids []string
			for _, rule := range report.Breaks() {
				ids = append(ids, rule.ID)
			}
			if !slices.Equal(ids, []string{f.rule}) {
				t.Errorf("broken are %q, want %s alone", ids, f.rule)
				tells(t, report)
			}
			for _, finding := range report.Findings {
				if finding.State == conformance.Broken && (len(finding.Evidence) == 0 || finding.Why == "") {
					t.Errorf("%s of %s has no evidence", finding.Rule, finding.Check)
				}
			}
		})
	}
	for _, rule := range conformance.Rules {
		if !planted[rule.ID] {
			t.Errorf("no fault is planted for %s, %s", rule.ID, rule.Text)
		}
	}
}

// TestFaultsSeenByAnswers: what answers and probes alone show is named without a look at effects.
func TestFaultsSeenByAnswers(t *testing.T) {
	for _, f := range faults {
		switch f.fault {
		case forgetsRounds, otherResult, refusesConcurrent, lateDoActs, undoLeaves, undoOvertakes, probeSaysDone, probeSaysAbsent, probeOverlooks, probeForgets:
		default:
			continue // they are seen as before, or only by their effects
		}
		t.Run(strings.ReplaceAll(string(f.fault), " ", "_"), func(t *testing.T) {
			t.Parallel()
			url := serve(t)
			start(t, url, agentName, f.fault, newStore())
			report := play(t, dial(t, url), quick(10))
			if breaks := report.Breaks(); len(breaks) != 1 || breaks[0].ID != f.rule {
				t.Errorf("broken are %v, want %s alone", breaks, f.rule)
				tells(t, report)
			}
		})
	}
}

// TestProbeWhileDoing: of a do that is over before anything is said of it, or that fails, nothing is judged; an agent that
// answers no probe while a do is at work holds the rule.
func TestProbeWhileDoing(t *testing.T) {
	url := serve(t)
	start(t, url, agentName, probeWaits, newStore())
	nc := dial(t, url)
	look := func(change func(*conformance.Options)) (state conformance.State, why string) {
		o := quick(1)
		o.Only = []string{"P15"}
		change(&o)
		for _, f := range play(t, nc, o).Findings {
			if f.Check == "probe while doing" {
				state, why = f.State, f.Why
			}
		}
		return state, why
	}
	if state, why := look(func(*conformance.Options) {}); state != conformance.Held || !strings.HasPrefix(why, "3 keys ") {
		t.Errorf("a slow do is %s: %s", state, why)
	}
	eventually(t, "a do that is too fast", func() bool { // one that happens to be slow is asked about
		state, why := look(func(o *conformance.Options) { o.SlowInput = nil })
		if state != conformance.Held && !strings.Contains(why, "slow-input") {
			t.Errorf("a fast do is %s: %s", state, why)
		}
		return state == conformance.NotJudged
	})
	if state, why := look(func(o *conformance.Options) { o.SlowInput = []byte(`{"refused":true}`) }); state != conformance.NotJudged || !strings.Contains(why, "error 422") {
		t.Errorf("a do that is refused is %s: %s", state, why)
	}
}

// TestCheckHasNoUndo: of a step without an undo what is about undos is not judged, and nothing is sent there.
func TestCheckHasNoUndo(t *testing.T) {
	url := serve(t)
	start(t, url, agentName, "", newStore())
	nc := dial(t, url)
	undos, err := nc.SubscribeSync("duly.undo." + agentName)
	if err != nil {
		t.Fatal(err)
	}
	o := quick(10)
	o.Check = true
	report := play(t, nc, o)
	if len(report.Findings) == 0 {
		t.Fatal("nothing is found")
	}
	for _, f := range report.Findings {
		want := conformance.Held
		if n := strings.TrimPrefix(f.Rule, "P"); len(n) == 1 && n != "9" || n == "15" {
			want = conformance.Aside
		}
		if f.State != want {
			t.Errorf("%s of %s is %s, want %s: %s", f.Rule, f.Check, f.State, want, f.Why)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := undos.Pending(); err != nil || n != 0 {
		t.Errorf("%d undos were sent (%v)", n, err)
	}
}

// TestCheckThatTakesTooLong: a check ends when its time is over, and what it has not seen by then is not judged.
func TestCheckThatTakesTooLong(t *testing.T) {
	url := serve(t)
	start(t, url, agentName, "", newStore())
	o := quick(1)
	o.SlowInput, o.CallTime, o.CheckTime, o.Only = []byte(`{"slow_ms":800}`), time.Second, 3100*time.Millisecond, []string{"P8"}
	began := time.Now()
	report := play(t, dial(t, url), o)
	if len(report.Findings) != 1 || report.NotJudged != 1 || report.Findings[0].Why != "the check did not end within 3.1s" {
		t.Errorf("%d findings", len(report.Findings))
		tells(t, report)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

// TestStopped: whoever stops a run is told of which keys an effect may stand.
func TestStopped(t *testing.T) {
	url := serve(t)
	s := newStore()
	a := start(t, url, agentName, "", s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	nc := dial(t, url)
	ended := make(chan error, 1)
	go func() {
		_, err := conformance.Run(ctx, nc, quick(1000))
		ended <- err
	}()
	eventually(t, "an effect", func() bool { return s.left() > 0 })
	a.mu.Lock()
	a.dead = true
	a.mu.Unlock()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "an effect may stand: conformance-") {
		t.Errorf("%v", err)
	}
}

// TestOnlySomeRules: rules that are not asked for are neither judged nor played.
func TestOnlySomeRules(t *testing.T) {
	url := serve(t)
	start(t, url, agentName, lateDoActs, newStore())
	o := quick(1000)
	o.Only = []string{"P4", "P6"}
	report := play(t, dial(t, url), o)
	var found []string
	for _, f := range report.Findings {
		found = append(found, fmt.Sprint(f.Rule, " ", f.State))
	}
	if want := []string{"P6 held", "P4 broken", "P4 broken"}; !slices.Equal(found, want) || report.Messages > 50 {
		t.Errorf("found %q, want %q, by %d messages", found, want, report.Messages)
		tells(t, report)
	}
}

// TestOthersCommandsComeAgain: while a run is a member of the queue group, a command of a scheduler that comes to it is
// answered so that it is sent again without an attempt.
func TestOthersCommandsComeAgain(t *testing.T) {
	url := serve(t)
	start(t, url, agentName, "", newStore())
	other := dial(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	codes := map[string]int{}
	done := make(chan error, 1)
	go func() { // a scheduler at work
		for n := 0; ctx.Err() == nil; n++ {
			m, err := other.RequestWithContext(t.Context(), "duly.do."+agentName, fmt.Appendf(nil,
				`{"v":1,"task":"t-%d","type":"a","step":"b","attempt":1,"key":"t-%d/b/0","complete_by":%q,"left_ms":60000,"input":{},"results":{}}`, n, n, time.Now().Add(time.Minute).UTC().Format(time.RFC3339Nano)))
			if err != nil {
				done <- err
				return
			}
			codes[m.Header.Get("Nats-Service-Error-Code")]++
		}
		done <- nil
	}()
	o := quick(1)
	o.Only = []string{"P14"}
	allowed := play(t, dial(t, url), o)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if allowed.Broken+allowed.NotJudged > 0 || codes[""] == 0 || codes["503"] == 0 || len(codes) != 2 {
		t.Errorf("codes %v, broken %d", codes, allowed.Broken)
	}
}

// TestUserWithFewRights: the kit's user needs what the guide says. Without the right to be a member of the queue group P14
// is not judged, and nothing else changes.
func TestUserWithFewRights(t *testing.T) {
	all := &server.Permissions{}
	few := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"duly.do." + agentName, "duly.undo." + agentName, "duly.probe." + agentName}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "duly.do." + agentName + " q"}},
	}
	fewer := &server.Permissions{Publish: few.Publish, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, Users: []*server.User{
		{Username: "agent", Password: "a", Permissions: all}, {Username: "few", Password: "f", Permissions: few}, {Username: "fewer", Password: "f", Permissions: fewer}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	of := func(user string) string { return strings.Replace(s.ClientURL(), "://", "://"+user+"@", 1) }
	start(t, of("agent:a"), agentName, "", newStore())
	allHeld(t, play(t, dial(t, of("few:f")), quick(10)))
	report := play(t, dial(t, of("fewer:f")), quick(10))
	for _, f := range report.Findings {
		if (f.State == conformance.NotJudged) != (f.Rule == "P14") || f.State == conformance.Broken {
			t.Errorf("%s of %s is %s: %s", f.Rule, f.Check, f.State, f.Why)
		}
	}
}

// TestRefusals: what cannot be played says why, and by which option.
func TestRefusals(t *testing.T) {
	url := serve(t)
	s := newStore()
	start(t, url, agentName, "", s)
	nc := dial(t, url)
	many := func(context.Context, string) (int, error) { return 3, nil }
	broken := func(context.Context, string) (int, error) { return 0, errors.New("no such table") }
	for name, test := range map[string]struct {
		change func(*conformance.Options)
		want   string
	}{
		"no agent":         {func(o *conformance.Options) { o.Agent = "" }, "agent: "},
		"step":             {func(o *conformance.Options) { o.Step = "a b" }, "step: "},
		"input no JSON":    {func(o *conformance.Options) { o.Input = []byte("{") }, "input: it is not JSON"},
		"input too long":   {func(o *conformance.Options) { o.SlowInput = make([]byte, core.InputBytesMax+1) }, "slow-input: 262145 bytes, the limit is 262144"},
		"calls":            {func(o *conformance.Options) { o.Calls = 100_001 }, "calls: 100001, want 1 to 100000"},
		"together":         {func(o *conformance.Options) { o.Together = 1 }, "together: 1, want 2 to 256"},
		"silence":          {func(o *conformance.Options) { o.Silence = time.Millisecond }, "silence: 1ms, want 10ms to 10m0s"},
		"check time":       {func(o *conformance.Options) { o.CheckTime = time.Second }, "check-time: 1s, want "},
		"a rule":           {func(o *conformance.Options) { o.Only = []string{"P16"} }, `only: "P16" is no rule, want some of P1 to P15`},
		"results":          {func(o *conformance.Options) { o.Results = []core.StepResult{{Step: "a", Result: []byte("{")}} }, "results: result of step a is not JSON"},
		"effects at first": {func(o *conformance.Options) { o.Effects = many }, "which was never done: 3, want 0"},
		"effects fail":     {func(o *conformance.Options) { o.Effects = broken }, "effects: of key conformance-"},
	} {
		o := quick(1)
		test.change(&o)
		_, err := conformance.Run(t.Context(), nc, o)
		var use *option.Error
		if !errors.As(err, &use) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an option.Error with %q", name, err, test.want)
		}
	}
	o := quick(1)
	o.Agent = "kit.nobody"
	if _, err := conformance.Run(t.Context(), nc, o); !errors.Is(err, conformance.ErrNoAgent) {
		t.Errorf("an agent that does not run: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := conformance.Run(cancelled, nc, quick(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is cancelled: %v", err)
	}
}

// TestEffectsAt: effects are counted over HTTP and over NATS, and an answer that is none is an error.
func TestEffectsAt(t *testing.T) {
	url := serve(t)
	nc := dial(t, url)
	var body string
	counter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("key") != "t/s/0" || r.URL.Query().Get("of") != "bank" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(func() {
		counter.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	if _, err := nc.Subscribe("effects", func(m *nats.Msg) {
		var q map[string]string
		if json.Unmarshal(m.Data, &q) == nil && q["key"] == "t/s/0" {
			_ = m.Respond([]byte(body)) // the asker's time says it
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{counter.URL + "/count?of=bank", "effects"} {
		count, err := conformance.EffectsAt(nc, target)
		if err != nil {
			t.Fatal(err)
		}
		for answer, want := range map[string]int{`{"effects":2,"more":1}`: 2, " 0\n": 0, "7": 7, "": -1, "-1": -1, "null": -1, `{"count":1}`: -1, "many": -1} {
			body = answer
			n, err := count(t.Context(), "t/s/0")
			if (err != nil) != (want < 0) || err == nil && n != want {
				t.Errorf("%s: %q is %d, %v", target, answer, n, err)
			}
		}
	}
	for _, target := range []string{"", "effects.*", "http://", "a b"} {
		if _, err := conformance.EffectsAt(nc, target); err == nil {
			t.Errorf("%q is taken", target)
		}
	}
	count, err := conformance.EffectsAt(nc, counter.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := count(t.Context(), "t/s/0"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a status that is none: %v", err)
	}
}
