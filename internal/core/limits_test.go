package core

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

type fieldLimits struct{ taken, refused []any }

var durations = fieldLimits{
	[]any{time.Millisecond, DurationMax},
	[]any{time.Duration(0), time.Duration(1), -time.Second, DurationMax + 1, time.Duration(math.MaxInt64), time.Duration(math.MinInt64)},
}

// orSilent is what a field takes that stays zero where the plan is silent.
func orSilent(l fieldLimits) fieldLimits {
	return fieldLimits{append([]any{time.Duration(0)}, l.taken...), l.refused[1:]}
}

func upTo(most int) fieldLimits {
	return fieldLimits{[]any{1, most}, []any{0, -1, most + 1, math.MaxInt, math.MinInt}}
}

var badNames = []any{"", ".", "..", "*", ">", "a b", "a\x00", "\xff", "é", strings.Repeat("n", NameBytesMax+1), strings.Repeat("n", 10<<20)}

// planLimits and stepLimits are what each field of a plan with its defaults
// filled in takes, and what it does not.
var planLimits = map[string]fieldLimits{
	"Name":       {[]any{"a", strings.Repeat("n", NameBytesMax)}, badNames},
	"Version":    {[]any{int64(1), int64(math.MaxInt64)}, []any{int64(0), int64(-1), int64(math.MinInt64)}},
	"Steps":      {[]any{manySteps(1), manySteps(StepsMax)}, []any{[]Step(nil), manySteps(StepsMax + 1), manySteps(10_000)}},
	"CompleteBy": durations,
	"Grace":      durations,
	"InputMax":   upTo(InputBytesMax),

	"Result":      textUpTo(ExpressionBytesMax),
	"InputSchema": textUpTo(schemaBytesMax),
	"UndoReserve": {orSilent(durations).taken[:2], append(orSilent(durations).refused, DurationMax)}, // the task has DurationMax
	"QueueFor":    {[]any{time.Duration(0), QueueForMin, 10 * time.Minute, QueueForMax}, []any{-time.Second, time.Millisecond, QueueForMin - 1, QueueForMax + 1, DurationMax, time.Duration(math.MaxInt64), time.Duration(math.MinInt64)}},
	"Admission":   {[]any{AdmissionQueue, AdmissionOff, AdmissionWarn, AdmissionRefuse}, []any{Admission("queue"), Admission("x"), Admission(strings.Repeat("x", 10<<20))}},
}

var stepLimits = map[string]fieldLimits{
	"Name":            {[]any{"a", strings.Repeat("n", NameBytesMax)}, badNames},
	"Agent":           {[]any{"a", "a.b.c.d", strings.Repeat("n", NameBytesMax)}, append(badNames, "a.b.c.d.e", "a..b", ".a", "a.", strings.Repeat("a.", 1<<20))},
	"After":           {[]any{[]int(nil), []int{0}}, []any{[]int{1}, []int{-1}, []int{0, 0}, []int{math.MaxInt}}}, // of the second step
	"Undoable":        {[]any{true, false}, nil},
	"CompleteBy":      durations,
	"UndoCompleteBy":  durations,
	"AttemptsMax":     upTo(AttemptsLimit),
	"UndoAttemptsMax": {[]any{0, 1, 10, AttemptsLimit}, []any{-1, AttemptsLimit + 1, math.MaxInt, math.MinInt}},
	"Backoff":         durations,
	"BackoffCap":      durations,
	"OnExhausted":     {[]any{PolicyUndo, PolicyWait, PolicyError, PolicySkip}, []any{Policy(""), Policy("x"), Policy(strings.Repeat("x", 10<<20))}},
	"Pause":           durations,
	"ResultMax":       upTo(ResultBytesMax),
	"UndoPatience":    orSilent(durations),
	"UndoBackoffCap":  orSilent(durations),

	"Kind":        {[]any{CallStep}, []any{WaitStep, SignalStep, TaskStep, EachStep, StepKind("call"), StepKind("x"), StepKind(strings.Repeat("x", 10<<20))}}, // of a call
	"When":        textUpTo(ExpressionBytesMax),
	"Input":       textUpTo(ExpressionBytesMax),
	"Uses":        {[]any{[]int(nil), []int{0}, []int{0, 0}}, []any{[]int{1}, []int{-1}, []int{math.MaxInt}, make([]int, StepsMax+1)}},
	"Narrow":      {[]any{true, false}, nil},
	"Probe":       {[]any{true, false}, nil},
	"KeyLasts":    durations,
	"Ask":         {[]any{AskPolicy(""), AskRequired}, []any{AskPolicy("x"), AskPolicy(strings.Repeat("x", 10<<20))}},
	"Least":       {[]any{time.Duration(0), time.Millisecond}, []any{time.Duration(1), -time.Second, 2 * time.Millisecond, time.Duration(math.MaxInt64)}}, // of a step of 1 ms
	"For":         {durations.taken, durations.refused[1:]},
	"Until":       {[]any{"u"}, []any{strings.Repeat("u", ExpressionBytesMax+1), ""}},
	"Schema":      textUpTo(schemaBytesMax),
	"Child":       {[]any{"a", strings.Repeat("n", NameBytesMax)}, append(badNames, "order")},
	"Elements":    {[]any{"e", strings.Repeat("e", ExpressionBytesMax)}, []any{"", strings.Repeat("e", ExpressionBytesMax+1)}},
	"ElementsMax": upTo(ElementsLimit),
	"Parallel":    upTo(ParallelLimit),
	"FailuresMax": {[]any{0, 1, defaultElementsMax}, []any{-1, defaultElementsMax + 1, math.MaxInt, math.MinInt}},
}

// kinds are the kinds of step that have the fields which a call has not, and what such a step is otherwise.
var kinds = map[string]Step{
	"For": {Kind: WaitStep, For: time.Second}, "Until": {Kind: WaitStep, Until: "u"}, "Schema": {Kind: SignalStep}, "Ask": {Kind: SignalStep},
	"Child":    {Kind: TaskStep, Child: "c"},
	"Elements": {Kind: EachStep, Child: "c", Elements: "e"}, "ElementsMax": {Kind: EachStep, Child: "c", Elements: "e"},
	"Parallel": {Kind: EachStep, Child: "c", Elements: "e"}, "FailuresMax": {Kind: EachStep, Child: "c", Elements: "e"},
}

func textUpTo(most int) fieldLimits {
	return fieldLimits{[]any{"", "x", strings.Repeat("x", most)}, []any{strings.Repeat("x", most+1), strings.Repeat("x", 10<<20)}}
}

func manySteps(n int) []Step {
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = Step{Name: "s" + strings.Repeat("x", i%50) + string(rune('a'+i/50%26)), Agent: "a"}
		steps[i].fillDefaults(DefaultTaskCompleteBy)
	}
	return steps
}

// TestPlanLimits walks every field of a plan and of a step, so that a new one
// must be listed.
//
// covers: E21
func TestPlanLimits(t *testing.T) {
	plan := func(field string) Plan {
		p := Plan{Name: "order", Version: 1, CompleteBy: DurationMax, Steps: manySteps(2)}
		if other, ok := kinds[field]; ok {
			other.Name = p.Steps[1].Name
			p.Steps[1] = other
		}
		p.Steps[1].After, p.Steps[1].Narrow = []int{0}, field == "Uses"
		p = p.WithDefaults()
		for i := range p.Steps { // so that no field binds another
			if s := &p.Steps[i]; s.Kind != WaitStep {
				s.CompleteBy, s.Backoff, s.BackoffCap = time.Millisecond, time.Millisecond, DurationMax
			}
		}
		return p
	}
	for f := range reflect.TypeFor[Plan]().Fields() {
		checkLimits(t, f.Name, planLimits, func(value any) error {
			p := plan(f.Name)
			reflect.ValueOf(&p).Elem().FieldByName(f.Name).Set(reflect.ValueOf(value))
			return p.Validate(0)
		})
	}
	for f := range reflect.TypeFor[Step]().Fields() {
		checkLimits(t, f.Name, stepLimits, func(value any) error {
			p := plan(f.Name)
			reflect.ValueOf(&p.Steps[1]).Elem().FieldByName(f.Name).Set(reflect.ValueOf(value))
			return p.Validate(0)
		})
	}
}

// TestPayloadLimit: what fits the server's largest message exactly is taken.
//
// covers: E21
func TestPayloadLimit(t *testing.T) {
	p := Plan{Name: "order", Version: 1, Steps: manySteps(2)}.WithDefaults()
	p.Steps[1].After, p.Steps[1].Undoable = []int{0}, true
	worst := InputBytesMax + envelopeBytesMax + 2*ResultBytesMax
	for payload, taken := range map[int]bool{worst: true, worst + 1: true, worst - 1: false, 1: false} {
		if err := p.Validate(payload); (err == nil) != taken {
			t.Errorf("max_payload %d: %v", payload, err)
		}
	}
}

func checkLimits(t *testing.T, field string, limits map[string]fieldLimits, validate func(any) error) {
	t.Helper()
	l, ok := limits[field]
	if !ok {
		t.Errorf("field %s: say what it takes", field)
	}
	for _, value := range l.taken {
		if err := validate(value); err != nil {
			t.Errorf("%s %.100v: %v", field, value, err)
		}
	}
	for _, value := range l.refused {
		if err := validate(value); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s %.100v: error %.300v, want a short one", field, value, err)
		}
	}
}
