// Package planform is a plan as JSON: one form for files, the wire and the state
// store, its canonical bytes, its content hash, and what two plans differ in.
package planform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/decimal"
	"duly.dev/duly/internal/near"
	"duly.dev/duly/internal/quickjson"
)

// Version is the version of the form.
const Version = 1

// Plan is a plan as files and the wire show it. A field that is absent has its
// default; one that is there counts, also a zero. A step that does not say whether it is
// undoable is: its agent is asked to undo it, and one that cannot is seen at once, while
// a forgotten undo would leave half a task behind. A check says "undoable": false.
//
// Kinds, expressions and what belongs to them came later: a plan of calls is as it was.
//
// A field that is added later must be omitted at its default (omitempty, with the
// default as the zero value or cleared by Canonical), so that plans stored without
// it keep their content hash, and its default must never change.
type Plan struct {
	V          int    `json:"v,omitempty"` // absent: 1
	Name       string `json:"name"`
	Version    int64  `json:"version"`
	CompleteBy *int64 `json:"complete_by_ms,omitempty"`
	Grace      *int64 `json:"grace_ms,omitempty"`
	InputMax   *int64 `json:"input_max,omitempty"`
	Steps      []Step `json:"steps"`

	Result      string          `json:"result,omitempty"`       // expression; see package expr
	InputSchema json.RawMessage `json:"input_schema,omitempty"` // JSON Schema 2020-12
	UndoReserve *int64          `json:"undo_reserve_ms,omitempty"`
	Admission   string          `json:"admission,omitempty"` // queue, off, warn or refuse
	QueueFor    *int64          `json:"queue_for_ms,omitempty"`
}

// Step is one step of a Plan.
type Step struct {
	Name            string    `json:"name"`
	Kind            string    `json:"kind,omitempty"`     // call, wait, signal, task or each; absent: call
	Agent           string    `json:"agent,omitempty"`    // of a call, and always there
	After           *[]string `json:"after,omitempty"`    // names of earlier steps; absent: of the one before; there and empty: none. Always there in a stored step
	Undoable        *bool     `json:"undoable,omitempty"` // absent: true, but of a wait or signal; always there in a stored call
	CompleteBy      *int64    `json:"complete_by_ms,omitempty"`
	UndoCompleteBy  *int64    `json:"undo_complete_by_ms,omitempty"`
	AttemptsMax     *int64    `json:"attempts_max,omitempty"`
	UndoAttemptsMax *int64    `json:"undo_attempts_max,omitempty"`
	Backoff         *int64    `json:"backoff_ms,omitempty"`
	BackoffCap      *int64    `json:"backoff_cap_ms,omitempty"`
	UndoPatience    *int64    `json:"undo_patience_ms,omitempty"`
	UndoBackoffCap  *int64    `json:"undo_backoff_cap_ms,omitempty"`
	OnExhausted     string    `json:"on_exhausted,omitempty"`
	Pause           *int64    `json:"pause_ms,omitempty"`
	ResultMax       *int64    `json:"result_max,omitempty"`

	When     string    `json:"when,omitempty"` // expression
	With     string    `json:"with,omitempty"` // expression
	Uses     *[]string `json:"uses,omitempty"` // names of steps that this one comes after; there and empty: none
	Least    *int64    `json:"least_ms,omitempty"`
	KeyLasts *int64    `json:"key_lasts_ms,omitempty"` // of a call: how long its service remembers a key
	Probe    bool      `json:"probe,omitempty"`        // of a call: its agent is asked what became of a do that was not answered

	For    *int64          `json:"for_ms,omitempty"`
	Until  string          `json:"until,omitempty"`  // expression
	Schema json.RawMessage `json:"schema,omitempty"` // JSON Schema 2020-12
	Ask    string          `json:"ask,omitempty"`    // required, or absent: whether an answer has to say which ask it is for

	Child       string `json:"child,omitempty"`
	Elements    string `json:"elements,omitempty"` // expression
	ElementsMax *int64 `json:"elements_max,omitempty"`
	Parallel    *int64 `json:"parallel,omitempty"`
	FailuresMax *int64 `json:"failures_max,omitempty"`
}

// Encode returns the JSON of a plan; the same plan gives the same bytes.
// Errors wrap core.ErrPlan: a duration that is not whole milliseconds, a step
// after one that does not exist, a schema that is not one.
func Encode(p *core.Plan) ([]byte, error) {
	var m millis
	form := Plan{V: Version, Name: p.Name, Version: p.Version, InputMax: said(int64(p.InputMax)), Steps: make([]Step, len(p.Steps)),
		CompleteBy: m.of("complete_by", p.CompleteBy), Grace: m.of("grace", p.Grace), Result: p.Result,
		UndoReserve: m.of("undo_reserve", p.UndoReserve), Admission: string(p.Admission), QueueFor: m.of("queue_for", p.QueueFor)}
	var err error
	if form.InputSchema, err = schemaForm("input_schema", p.InputSchema); err != nil {
		return nil, fmt.Errorf("%w: plan %s: %w", core.ErrPlan, p.Name, err)
	}
	for i := range p.Steps {
		if form.Steps[i], err = encodeStep(p, i, &m); err != nil {
			return nil, fmt.Errorf("%w: plan %s: step %s %w", core.ErrPlan, p.Name, p.Steps[i].Name, err)
		}
	}
	if m.err != nil {
		return nil, fmt.Errorf("%w: plan %s: %w", core.ErrPlan, p.Name, m.err)
	}
	return json.Marshal(form)
}

func encodeStep(p *core.Plan, i int, m *millis) (Step, error) {
	s := &p.Steps[i]
	form := Step{Name: s.Name, Agent: s.Agent, AttemptsMax: said(int64(s.AttemptsMax)),
		UndoAttemptsMax: said(int64(s.UndoAttemptsMax)), OnExhausted: string(s.OnExhausted), ResultMax: said(int64(s.ResultMax)),
		CompleteBy: m.of("complete_by", s.CompleteBy), UndoCompleteBy: m.of("undo_complete_by", s.UndoCompleteBy),
		Backoff: m.of("backoff", s.Backoff), BackoffCap: m.of("backoff_cap", s.BackoffCap),
		UndoPatience: m.of("undo_patience", s.UndoPatience), UndoBackoffCap: m.of("undo_backoff_cap", s.UndoBackoffCap), Pause: m.of("pause", s.Pause),
		Kind: string(s.Kind), When: s.When, With: s.Input, Least: m.of("least", s.Least), KeyLasts: m.of("key_lasts", s.KeyLasts), Probe: s.Probe, Ask: string(s.Ask), For: m.of("for", s.For), Until: s.Until,
		Child: s.Child, Elements: s.Elements, ElementsMax: said(int64(s.ElementsMax)), Parallel: said(int64(s.Parallel)), FailuresMax: said(int64(s.FailuresMax))}
	if s.Kind == core.CallStep {
		undoable := s.Undoable
		form.Undoable = &undoable
	}
	after, err := names(p, s.After, "comes after")
	if err != nil {
		return form, err
	}
	form.After = &after
	if s.Narrow {
		uses, err := names(p, s.Uses, "uses")
		if err != nil {
			return form, err
		}
		form.Uses = &uses
	}
	form.Schema, err = schemaForm("schema", s.Schema)
	return form, err
}

// names are those of the steps of such numbers.
func names(p *core.Plan, steps []int, what string) ([]string, error) {
	all := make([]string, 0, len(steps)) // not nil: a narrow step may use none
	for _, i := range steps {
		if i < 0 || i >= len(p.Steps) {
			return nil, fmt.Errorf("%s step number %d of %d", what, i+1, len(p.Steps))
		}
		all = append(all, p.Steps[i].Name)
	}
	return all, nil
}

// schemaForm is a schema in the one form that its meaning has: members in order, no spaces, one spelling of a number. Empty:
// none.
func schemaForm(field, schema string) (json.RawMessage, error) {
	if schema == "" {
		return nil, nil
	}
	d := json.NewDecoder(strings.NewReader(schema))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("%s is no JSON: %w", field, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s is more than one JSON value", field)
	}
	switch value.(type) {
	case map[string]any, bool:
	default:
		return nil, fmt.Errorf("%s is %s, want a JSON Schema: an object, true or false", field, short(schema))
	}
	if err := quickjson.Check(field, []byte(schema)); err != nil {
		return nil, err
	}
	value, err := spelled(value)
	if err != nil {
		return nil, fmt.Errorf("%s: number %w", field, err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// spelled gives each number in a value its one spelling.
func spelled(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		canon, err := decimal.Canon(v.String())
		return json.Number(canon), err
	case map[string]any:
		for name := range v {
			if v[name], err = spelled(v[name]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = spelled(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// millis turns durations into whole milliseconds and keeps the first error.
type millis struct{ err error }

func (m *millis) of(name string, d time.Duration) *int64 {
	if d%time.Millisecond != 0 && m.err == nil {
		m.err = fmt.Errorf("%s is %v, want whole milliseconds", name, d)
	}
	return said(d.Milliseconds())
}

// said is a number of a spec; 0 is not said, so that it has its default.
func said(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// numbers reads the fields of a spec, whose zero in a plan would mean that nothing was
// said, and keeps the errors.
type numbers struct {
	plan *core.Plan
	step int            // -1: the plan itself
	at   map[string]int // the first step of each name
	errs core.PlanErrors
}

func (r *numbers) wrong(field, format string, args ...any) {
	switch {
	case len(r.errs) >= core.PlanErrorsMax:
	case r.step < 0:
		r.errs = append(r.errs, r.plan.Wrong(field, format, args...))
	default:
		r.errs = append(r.errs, r.plan.WrongStep(r.step, field, format, args...))
	}
}

// said is the number that a spec names; 0: it names none.
func (r *numbers) said(field, shown string, n *int64) int64 {
	if n == nil {
		return 0
	}
	if *n == 0 {
		r.wrong(field, "%s is 0, want 1 or more, or nothing said", shown)
	}
	return *n
}

// number reads a count; what no int holds is kept out of range, so that Validate refuses it.
func (r *numbers) number(name string, n *int64) int {
	return int(max(-1<<31, min(r.said(name, name, n), 1<<31-1)))
}

// ms reads milliseconds, in the same way.
func (r *numbers) ms(name string, n *int64) time.Duration {
	return Milliseconds(r.said(name, name+"_ms", n))
}

// Milliseconds is so many of them; what overflows is kept out of range, so that a check
// refuses it.
func Milliseconds(n int64) time.Duration {
	const most = int64(core.DurationMax/time.Millisecond) + 1
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}

// Decode reads the JSON of a plan. It neither fills in defaults nor
// validates: see core.Plan. Errors wrap core.ErrPlan: no JSON, an unknown field, another
// version of the form; or core.PlanErrors with all of these: a step that names one which is not
// before it, a number that is 0, a schema that is none. With the latter the plan is what else could be read.
func Decode(data []byte) (core.Plan, error) {
	var spec Plan
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
			return core.Plan{}, fmt.Errorf("%w: %w", core.ErrPlan, unknownField(data, name))
		}
		return core.Plan{}, fmt.Errorf("%w: %w", core.ErrPlan, decodeError(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return core.Plan{}, fmt.Errorf("%w: more than one JSON value", core.ErrPlan)
	}
	// What encoding/json takes and says nothing: text that is not UTF-8, a name twice or in another case, null.
	err := quickjson.CheckText("it", data) // depth is a matter of each schema
	if err == nil {
		err = quickjson.CheckMembers(data, reflect.TypeFor[Plan]())
	}
	if err != nil {
		return core.Plan{}, fmt.Errorf("%w: %w", core.ErrPlan, err)
	}
	if spec.V != 0 && spec.V != Version {
		return core.Plan{}, fmt.Errorf("%w: form version %d, want %d", core.ErrPlan, spec.V, Version)
	}
	// Names are looked up step by step: a flood of them is refused first.
	if n := len(spec.Steps); n > core.StepsMax {
		return core.Plan{}, fmt.Errorf("%w: plan %q: %d steps, want 1 to %d", core.ErrPlan, short(spec.Name), n, core.StepsMax)
	}
	p := core.Plan{Name: spec.Name, Version: spec.Version, Steps: make([]core.Step, len(spec.Steps)), Result: spec.Result, Admission: core.Admission(spec.Admission)}
	if spec.Admission == "queue" {
		p.Admission = core.AdmissionQueue
	}
	read := numbers{plan: &p, step: -1, at: make(map[string]int, len(spec.Steps))}
	for i := range spec.Steps {
		name := spec.Steps[i].Name
		p.Steps[i].Name = name
		if _, twice := read.at[name]; !twice {
			read.at[name] = i
		}
	}
	p.CompleteBy, p.Grace = read.ms("complete_by", spec.CompleteBy), read.ms("grace", spec.Grace)
	p.InputMax, p.UndoReserve = read.number("input_max", spec.InputMax), read.ms("undo_reserve", spec.UndoReserve)
	p.QueueFor, p.InputSchema = read.ms("queue_for", spec.QueueFor), read.schema("input_schema", spec.InputSchema)
	for i := range spec.Steps {
		read.step = i
		read.stepOf(spec.Steps, &spec.Steps[i])
	}
	return p, read.errs.Err()
}

// decodeError says what encoding/json refuses in the words of plans.
func decodeError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := "text"
		switch wrong.Type.Kind() {
		case reflect.Int, reflect.Int64:
			want = "a whole number"
		case reflect.Bool:
			want = "true or false"
		case reflect.Slice:
			want = "a list"
		case reflect.Struct:
			want = "an object"
		}
		return fmt.Errorf("%s: want %s, got %s, in byte %d", cmp.Or(wrong.Field, "the plan"), want, wrong.Value, wrong.Offset)
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is no JSON: %w, in byte %d", err, wrong.Offset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is no JSON: it ends too early: %w", err)
	}
	return fmt.Errorf("it is no JSON: %w", err)
}

// unknownField says which of a plan and its steps has a field, quoted as in Go, that it cannot have, and what may be meant.
func unknownField(data []byte, quoted string) error {
	name, err := strconv.Unquote(quoted)
	if err != nil {
		name = quoted
	}
	var plan map[string]json.RawMessage
	var steps []map[string]json.RawMessage
	// What cannot be read so has no such step: then it is said of a plan.
	_ = json.Unmarshal(data, &plan)
	_ = json.Unmarshal(plan["steps"], &steps)
	what, form := "a plan", reflect.TypeFor[Plan]()
	if _, is := plan[name]; !is {
		what, form = "a step", reflect.TypeFor[Step]()
		for i, step := range steps {
			if _, is := step[name]; is {
				var own string
				_ = json.Unmarshal(step["name"], &own)
				what = cmp.Or(core.ShortText(own, core.NameBytesMax), fmt.Sprintf("number %d", i+1))
				what = "step " + what + ": a step"
				break
			}
		}
	}
	known := fieldNames(form)
	if slices.Contains(known, name+"_ms") {
		return fmt.Errorf("%s has no %q in JSON that a door takes: is %s_ms meant, in milliseconds?", what, name, name)
	}
	return fmt.Errorf("%s has no %q%s", what, core.ShortText(name, 64), Meant(name, known))
}

// fieldNames are the names of the members of a form, Plan or Step.
func fieldNames(form reflect.Type) []string {
	var known []string
	for i := range form.NumField() {
		name, _, _ := strings.Cut(form.Field(i).Tag.Get("json"), ",")
		known = append(known, name)
	}
	return known
}

// Meant asks for the field that is meant by one which is not known, where there is one.
func Meant(name string, known []string) string {
	if name == "undo" {
		return ": its agent is told to undo, on a subject of its own (undo.<agent>)"
	}
	return near.Ask(name, known)
}

// stepOf reads one step into the plan.
func (r *numbers) stepOf(all []Step, s *Step) {
	step := core.Step{
		Name: s.Name, Kind: core.StepKind(s.Kind), Agent: s.Agent,
		CompleteBy: r.ms("complete_by", s.CompleteBy), UndoCompleteBy: r.ms("undo_complete_by", s.UndoCompleteBy),
		AttemptsMax: r.number("attempts_max", s.AttemptsMax), UndoAttemptsMax: r.number("undo_attempts_max", s.UndoAttemptsMax),
		Backoff: r.ms("backoff", s.Backoff), BackoffCap: r.ms("backoff_cap", s.BackoffCap),
		UndoPatience: r.ms("undo_patience", s.UndoPatience), UndoBackoffCap: r.ms("undo_backoff_cap", s.UndoBackoffCap),
		OnExhausted: core.Policy(s.OnExhausted), Pause: r.ms("pause", s.Pause), ResultMax: r.number("result_max", s.ResultMax),
		When: s.When, Input: s.With, Least: r.ms("least", s.Least), KeyLasts: r.ms("key_lasts", s.KeyLasts), Probe: s.Probe, For: r.ms("for", s.For), Until: s.Until, Schema: r.schema("schema", s.Schema), Ask: core.AskPolicy(s.Ask),
		Child: s.Child, Elements: s.Elements, ElementsMax: r.number("elements_max", s.ElementsMax), Parallel: r.number("parallel", s.Parallel),
	}
	if s.FailuresMax != nil && *s.FailuresMax != 0 { // 0 is its default
		step.FailuresMax = r.number("failures_max", s.FailuresMax)
	}
	if s.Kind == "call" {
		step.Kind = core.CallStep
	}
	never := step.Kind == core.WaitStep || step.Kind == core.SignalStep
	step.Undoable = !never
	if s.Undoable != nil {
		if step.Undoable = *s.Undoable; !step.Undoable && step.Kind.Parent() { // its default would hide that
			r.wrong("undoable", "undoable is false, but a step of kind %s is undone as its child is: say it in the steps of the child", step.Kind)
		}
	}
	switch {
	case s.After != nil:
		step.After = r.names("after", all, *s.After)
	case r.step > 0:
		step.After = []int{r.step - 1}
	}
	if s.Uses != nil {
		step.Narrow, step.Uses = true, r.names("uses", all, *s.Uses)
	}
	r.plan.Steps[r.step] = step
}

// names are the numbers of the steps that a step names, which all stand before it.
func (r *numbers) names(field string, all []Step, names []string) (steps []int) {
	if n := len(names); n > core.StepsMax {
		r.wrong(field, "%s names %d steps, the limit is %d", field, n, core.StepsMax)
		return nil
	}
	for _, name := range names {
		if len(r.errs) >= core.PlanErrorsMax { // what is wrong with each is work to say
			return nil
		}
		switch a, is := r.at[name]; {
		case !is:
			r.wrong(field, "%s", NoStep(r.step, field, name, all))
		case a == r.step:
			r.wrong(field, "%s names the step itself", field)
		case a > r.step:
			if path := circle(all, r.step, a); path != nil && field == "after" {
				r.wrong(field, "%s", Circle(path, Silent(all)))
				continue
			}
			r.wrong(field, "%s names %s, which stands behind it: put the steps in an order in which each stands behind those that it names", field, core.QuoteShort(name))
		default:
			steps = append(steps, a)
		}
	}
	return steps
}

// NoStep says that a step, all[of], names one which is not there.
func NoStep(of int, field, name string, all []Step) string {
	known := make([]string, 0, len(all))
	for i := range all {
		if i != of && all[i].Name != "" {
			known = append(known, all[i].Name)
		}
	}
	if len(known) == 0 {
		return fmt.Sprintf("%s names %s, which is no step, and there is no other", field, core.QuoteShort(name))
	}
	slices.Sort(known)
	return fmt.Sprintf("%s names %s, which is no step; there is %s", field, core.QuoteShort(name), core.ShortText(strings.Join(slices.Compact(known), ", "), 300))
}

// Circle says that steps come after each other in a circle: the first of the path after the second and so on, the last
// after the first. silent are the steps that come after another because they say nothing, see Silent.
func Circle(path []string, silent map[string]string) string {
	text := fmt.Sprintf("the steps come after each other in a circle: %s after %s", strings.Join(path, " after "), path[0])
	for i, name := range path {
		if before := path[(i+1)%len(path)]; silent[name] == before {
			return text + fmt.Sprintf("; step %s has no after, so that it comes after %s, which is written before it: say after: [] if it begins at once", name, before)
		}
	}
	return text
}

// Silent are the steps that do not say what they come after, each with the step before it, which is what they do.
func Silent(all []Step) map[string]string {
	silent := map[string]string{}
	for i := 1; i < len(all); i++ {
		if all[i].After == nil {
			silent[all[i].Name] = all[i-1].Name
		}
	}
	return silent
}

// circle is the path from a step over another that it comes after back to itself, or nil.
func circle(all []Step, from, to int) (path []string) {
	index := make(map[string]int, len(all))
	for i := range all {
		index[all[i].Name] = i
	}
	seen := map[int]bool{}
	var back func(i int) []string
	back = func(i int) []string {
		if i == from {
			return []string{}
		}
		if seen[i] {
			return nil
		}
		seen[i] = true
		var after []string
		switch {
		case all[i].After != nil:
			after = *all[i].After
		case i > 0:
			after = []string{all[i-1].Name}
		}
		for _, name := range after {
			if next, ok := index[name]; ok {
				if rest := back(next); rest != nil {
					return append([]string{short(all[i].Name)}, rest...)
				}
			}
		}
		return nil
	}
	if path = back(to); path != nil {
		path = append([]string{short(all[from].Name)}, path...)
	}
	return path
}

// schema reads a schema in the one form that its meaning has.
func (r *numbers) schema(name string, raw json.RawMessage) string {
	form, err := schemaForm(name, string(raw))
	if err != nil {
		r.wrong(name, "%v", err)
	}
	return string(form)
}

// short keeps a stranger's name from filling an error text.
func short(s string) string { return core.ShortText(s, 128) }
