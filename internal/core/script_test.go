package core

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts print into their files")

// TestScripts plays testdata/scripts/*.txt. A script is read top to bottom: a
// line that begins a command at the margin is done, the indented lines below it
// are what it must print. Times are seconds since the birth of the task; +5s
// before a command lets five seconds pass; the jitter is one half.
//
//	plan complete-by=60s grace=2s
//	step package attempts=2 backoff=200ms policy=wait
//	submit
//	+15ms reply code=422 error=suspended
//	due overdue
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(data))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(data) {
				t.Errorf("%s differs; it prints now:\n%s", file, got)
			}
		})
	}
}

// play runs a script and returns it with what it prints.
func play(t *testing.T, text string) string {
	p := &player{t: t}
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "    ") {
			continue // what it printed last time
		}
		p.b.WriteString(line + "\n")
		if line != "" && line[0] != '#' {
			p.command(strings.Fields(line))
		}
	}
	return p.b.String()
}

// player is one script being played.
type player struct {
	t    *testing.T
	plan Plan
	rig  *rig
	b    strings.Builder
}

// args are the key=value words of a command.
type args map[string]string

func (p *player) command(words []string) {
	p.t.Helper()
	switch {
	case words[0] == "due":
		next := p.rig.task.NextDue(p.rig.plan)
		if words = words[1:]; words[0] == "wake" {
			next = p.rig.nextWake()
		}
		p.rig.now = max(p.rig.now, next)
	case words[0][0] == '+':
		p.rig.now = p.rig.now.Add(p.duration(words[0][1:]))
		words = words[1:]
	}
	a := args{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		a[key] = strings.ReplaceAll(value, "_", " ")
	}
	switch words[0] {
	case "plan":
		p.plan = Plan{Name: "delivery", Version: 1, CompleteBy: p.duration(a["complete-by"]), Grace: p.duration(a["grace"])}
	case "step":
		p.step(words[1], a)
	case "submit":
		p.rig = newRig(p.t, p.plan)
		p.rig.birth(p.steps(a["full"]).low)
		p.print(nil)
	case "submit-unknown":
		p.submitUnknown()
	case "crash":
		p.rig.crash()
		p.print(nil)
	default:
		p.event(words[0], a)
	}
}

func (p *player) step(name string, a args) {
	_, check := a["check"]
	st := Step{
		Name: name, Agent: "agent." + name, Undoable: !check, OnExhausted: Policy(a["policy"]),
		CompleteBy: p.duration(a["complete-by"]), UndoCompleteBy: p.duration(a["undo-complete-by"]),
		Backoff: p.duration(a["backoff"]), Pause: p.duration(a["pause"]),
		KeyLasts: p.duration(a["key-lasts"]), Probe: a["probe"] != "", AttemptsMax: int(p.number(a["attempts"])), UndoAttemptsMax: int(p.number(a["undo-attempts"])),
	}
	if said, ok := a["after"]; !ok && len(p.plan.Steps) > 0 && said == "" {
		st.After = []int{len(p.plan.Steps) - 1} // as NewPlan has it
	}
	for _, after := range strings.FieldsFunc(a["after"], func(r rune) bool { return r == ',' }) {
		st.After = append(st.After, p.plan.StepIndex(after))
	}
	p.plan.Steps = append(p.plan.Steps, st)
}

// submitUnknown is the birth of a task whose plan is unknown; the plan of the
// script is there from the next command on.
func (p *player) submitUnknown() {
	p.rig = newRig(p.t, p.plan)
	p.rig.task = &Task{ID: "t1", Type: "delivery", Number: 1, CreatedAt: p.rig.now, Input: []byte(`{}`)}
	Birth(nil, p.rig.task, &Event{At: p.rig.now, Actor: node, Error: "no plan is stored for type delivery"}, &p.rig.out)
	p.rig.journal = append(p.rig.journal, p.rig.out.Records...)
	p.rig.row = *p.rig.task
	p.print(nil)
}

var eventKinds = map[string]EventKind{
	"reply": EventReply, "unserved": EventUnserved, "wake": EventWake, "claim": EventClaim,
	"overdue": EventOverdue, "served": EventServed, "cancel": EventCancel, "undo": EventUndo, "resubmit": EventResubmit,
	"resolve": EventResolve, "extend": EventExtend, "poison": EventPoison, "accept": EventAccept, "edit": EventEdit, "probed": EventProbed,
}

func (p *player) event(name string, a args) {
	p.t.Helper()
	kind, ok := eventKinds[name]
	if !ok {
		p.t.Fatalf("no command is called %q", name)
	}
	ev := Event{
		Kind: kind, Rand: 0.5, Node: node, Actor: a["actor"], Reason: a["reason"], Seq: p.number(a["seq"]),
		Code: int(p.number(a["code"])), Error: a["error"], Step: a["step"], As: State(a["as"]), Full: p.steps(a["full"]),
		IfSeq: p.number(a["if-seq"]), Input: bytesOf(a["input"]), Result: bytesOf(a["result"]), Found: ProbeOutcome(a["found"]),
	}
	if until := a["until"]; until != "" {
		ev.Until = birthTime.Add(p.duration(until))
	}
	if ev.Seq == 0 && kind == EventProbed {
		ev.Seq = lastAsked(p.rig)
	}
	if ev.Seq == 0 && (kind == EventReply || kind == EventUnserved) {
		ev.Seq = lastCommand(p.rig)
	}
	if i := p.rig.task.OutSeq(ev.Seq); i >= 0 {
		ev.Copy = p.rig.task.Steps[i].Copy
	}
	if a["copy"] != "" {
		ev.Copy = uint32(p.number(a["copy"]))
	}
	p.print(p.rig.apply(ev))
}

// bytesOf is nil for no text.
func bytesOf(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// steps turns names joined by commas into the set that Event.Full is.
func (p *player) steps(names string) StepSet {
	var set StepBuilder
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
		set.Add(p.plan.StepIndex(name))
	}
	return set.Set()
}

func (p *player) number(s string) int64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) duration(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// print writes what the last command led to.
func (p *player) print(err error) {
	if errors.Is(err, ErrStale) || errors.Is(err, ErrNotAllowed) {
		p.line("%v", err)
		return
	}
	r := p.rig
	for i := range r.out.Records {
		p.record(&r.out.Records[i])
	}
	for _, e := range r.out.Effects {
		p.effect(e)
	}
	p.line("%s", header(r.task)+p.waitsFor())
	if r.out.Row && !r.task.State.Ended() {
		p.line("row: complete_by %s, deadline %s", at(r.task.Bound), at(r.task.Deadline))
	}
}

func (p *player) waitsFor() string {
	if w := p.rig.task.WaitsFor; w != "" {
		return " (waits for room at " + w + ")"
	}
	return ""
}

func (p *player) record(r *Record) {
	s := fmt.Sprintf("%s #%d %s", at(r.At), r.Seq, r.Kind)
	if r.Step >= 0 {
		s += fmt.Sprintf(" %s.%d", p.rig.plan.Steps[r.Step].Name, r.Attempt)
	}
	if r.Code != 0 {
		s += fmt.Sprintf(" %d", r.Code)
	}
	for _, text := range []string{r.Error, r.Reason} {
		if text != "" {
			s += ": " + text
		}
	}
	if r.Kind == KindAccepted || (r.Kind == KindLate || r.Kind == KindProbed) && r.Code == 0 {
		s += ", result " + string(r.Result)
	}
	if r.Input != nil {
		s += ", input from now on " + string(r.Input)
	}
	p.line("%s", s)
}

func (p *player) effect(e Effect) {
	switch e.Kind {
	case EffectDo, EffectUndo:
		verb := map[EffectKind]string{EffectDo: "do", EffectUndo: "undo"}[e.Kind]
		name := p.rig.plan.Steps[e.Step].Name
		text := fmt.Sprintf("→ %s %s.%d, number %d, by %s, key %s", verb, name, e.Attempt, e.Seq, at(e.At), Key("t1", name, p.rig.task.Round))
		if input := p.rig.task.InputOf(e.Step); string(input) != "{}" {
			text += ", input " + string(input)
		}
		if s := &p.rig.task.Steps[e.Step]; e.Kind == EffectUndo && s.Effect.known() {
			text += ", of a do that answered " + string(s.Result)
		}
		p.line("%s", text)
	case EffectProbe:
		p.line("→ ask the agent of %s.%d until %s what became of number %d", p.rig.plan.Steps[e.Step].Name, e.Attempt, at(e.At), e.Seq)
	case EffectWake:
		p.line("→ wake at %s", at(e.At))
	case EffectReceived:
		p.line("→ tell: received")
	case EffectEnded:
		p.line("→ tell: %s", p.rig.task.State)
	case EffectAlert:
		p.line("→ alert: the undo of %s", p.rig.plan.Steps[e.Step].Name)
	}
}

func (p *player) line(format string, args ...any) {
	p.b.WriteString("    " + fmt.Sprintf(format, args...) + "\n")
}

// at shows an instant as time since the birth.
func at(i Instant) string { return i.Sub(birthTime).String() }
