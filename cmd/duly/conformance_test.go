package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/natstest"
	"duly.dev/duly/internal/pause"
)

type (
	conformanceOrder struct {
		Cents int
		Slow  bool
	}
	conformancePayment struct{ ID string }
)

// conformanceAgents runs agents: payment.charge of package duly, with a ledger, and bare.charge, which answers each
// message with success, as bare.check does, which has no undo.
func conformanceAgents(t *testing.T) (url string) {
	t.Helper()
	s := natstest.Start(t, natsserver.Options{SyncOff: true})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for subject, answer := range map[string][]byte{"duly.do.bare.charge": []byte(`{"Number":"r-1"}`), "duly.undo.bare.charge": nil, "duly.do.bare.check": []byte("true")} {
		if _, err := nc.QueueSubscribe(subject, "q", func(m *nats.Msg) { _ = m.Respond(answer) }); err != nil { // one without a reply subject
			t.Fatal(err)
		}
	}
	agent, err := duly.NewAgent(nc, duly.WithLedger(duly.NewMemoryLedger(0, 0)), duly.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	err = duly.NewStep[conformanceOrder, conformancePayment]("charge", "payment.charge").Serve(agent,
		func(ctx context.Context, call duly.Call[conformanceOrder]) (conformancePayment, error) {
			if call.Input.Slow {
				if err := pause.For(ctx, 50*time.Millisecond); err != nil {
					return conformancePayment{}, err
				}
			}
			return conformancePayment{ID: call.Key}, nil
		},
		func(context.Context, duly.Undo[conformanceOrder, conformancePayment]) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	background(t, agent.Run)
	until(t, "the agent answers probes", func() bool {
		_, err := nc.Request("duly.probe.payment.charge", nil, time.Second)
		return err == nil
	})
	return s.ClientURL()
}

// conformanceFiles makes the files that the page names, in a folder of the test's own.
func conformanceFiles(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"order.json": `{"Cents":1999}`, "slow.json": `{"Cents":1999,"Slow":true}`, "credit.json": `{"credit":{"Points":700}}`, "broken.json": `{`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConformance: the exit status says whether an agent holds the rules, and the report which it breaks, and why.
func TestConformance(t *testing.T) {
	url := conformanceAgents(t)
	conformanceFiles(t)
	of := func(args ...string) []string {
		return append([]string{"conformance", "--nats-url", url, "--calls", "20", "--silence", "200ms", "--call-time", "2s"}, args...)
	}
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"good":         {of("--agent", "payment.charge", "--step", "charge", "--input", "order.json", "--slow-input", "slow.json", "--results", "credit.json", "--probes", "--strict"), exitDone, `agent payment\.charge: \d+ held, 0 broken, 0 not judged`},
		"bad":          {of("--agent", "bare.charge"), exitFailed, `(?s)\nP4  broken, undo, undo again, late do\n  rule  a do whose key was undone.*came  after \S+s: success, \{"Number":"r-1"\}.*broken \(P4, P10, P11\)`},
		"some rules":   {of("--agent", "bare.charge", "--only", "p1,P6"), exitDone, `3 held, 0 broken, 0 not judged`},
		"no probes":    {of("--agent", "bare.charge", "--only", "P15", "--strict"), exitDone, `0 held, 0 broken, 0 not judged, 2 that do not apply`},
		"probes":       {of("--agent", "bare.charge", "--only", "P15", "--probes"), exitFailed, `no instance listens on duly\.probe\.bare\.charge`},
		"not strict":   {of("--agent", "bare.check", "--only", "P6"), exitDone, `0 held, 0 broken, 1 not judged`},
		"strict":       {of("--agent", "bare.check", "--only", "P6", "--strict"), exitFailed, `0 held, 0 broken, 1 not judged`},
		"a check":      {of("--agent", "bare.check", "--no-undo", "--only", "P1,P12,P13,P14"), exitDone, `\d held, 0 broken, 0 not judged, 2 that do not apply`},
		"no such rule": {of("--agent", "bare.charge", "--only", "P99"), exitUse, `only: "P99" is no rule`},
		"no agent":     {of("--agent", "no.such"), exitUnreachable, `duly: conformance of agent no\.such: no instance listens on duly\.do\.no\.such`},
		"no name":      {of(), exitUse, `--agent`},
		"another step": {of("--agent", "payment.charge", "--step", "other"), exitUse, `step: other: the agent answered error 501`},
		"no JSON":      {of("--agent", "payment.charge", "--input", "broken.json"), exitUse, `input: it is not JSON`},
		"wrong input":  {of("--agent", "payment.charge", "--step", "charge", "--input", "credit.json", "--results", "broken.json"), exitUse, `results: .*broken\.json: want a JSON object`},
		"no server":    {[]string{"conformance", "--agent", "bare.charge", "--nats-url", "nats://127.0.0.1:1", "--timeout", "100ms"}, exitUnreachable, `NATS`},
	} {
		code, out, errs := command(t, "", test.args...)
		if code != test.code || !regexp.MustCompile(test.want).MatchString(out+errs) {
			t.Errorf("%s: exit status %d, want %d, and %s in:\n%s%s", name, code, test.code, test.want, out, errs)
		}
	}
	code, out, _ := command(t, "", of("--agent", "bare.charge", "--json")...)
	var report struct {
		Agent    string
		Broken   int
		Findings []struct {
			Rule, State string
			Evidence    []struct{ Came []string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitFailed || report.Agent != "bare.charge" || report.Broken == 0 {
		t.Fatalf("exit status %d, %v: %s", code, err, out)
	}
	for _, f := range report.Findings {
		if f.State == "broken" && len(f.Evidence) == 0 {
			t.Errorf("%s has no evidence: %s", f.Rule, out)
		}
	}
}

// TestConformancePage: the commands of the guide work as they stand there, and what it shows is what they print.
func TestConformancePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NATS_URL", conformanceAgents(t))
	conformanceFiles(t)
	commands := 0
	for _, block := range strings.Split(string(page), "```text\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		line, shown, _ := strings.Cut(block, "\n")
		args, ok := strings.CutPrefix(line, "duly ")
		if !ok {
			t.Errorf("a block does not begin with a command: %s", line)
			continue
		}
		commands++
		code, out, errs := command(t, "", strings.Fields(args)...)
		if want := map[bool]int{true: exitFailed, false: exitDone}[strings.Contains(shown, "broken")]; code != want {
			t.Errorf("%s: exit status %d, want %d: %s%s", line, code, want, out, errs)
		}
		for part := range strings.Lines(shown) {
			if part = strings.TrimSpace(part); part != "…" && !strings.Contains(squeeze(out), squeeze(part)) {
				t.Errorf("%s does not print %q:\n%s", line, part, out)
			}
		}
	}
	if commands == 0 {
		t.Error("the page has no command")
	}
}

// squeeze is a text with one space between words, and without what each run has of its own.
func squeeze(text string) string {
	text = regexp.MustCompile(`\d+(\.\d+)?(µs|ms|s)\b|conformance-[a-z0-9]+-\d*`).ReplaceAllString(text, "")
	return strings.Join(strings.Fields(text), " ")
}
