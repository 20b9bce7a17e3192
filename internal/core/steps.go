package core

// stepKind is a StepKind in one byte.
type stepKind uint8

const (
	kindCall stepKind = iota
	kindWait
	kindSignal
	kindTask
	kindEach
)

func kindOf(k StepKind) stepKind {
	switch k {
	case WaitStep:
		return kindWait
	case SignalStep:
		return kindSignal
	case TaskStep:
		return kindTask
	case EachStep:
		return kindEach
	}
	return kindCall
}

// passive reports whether nothing is at work while a step of the kind is out: it waits for an instant or a signal.
func (k stepKind) passive() bool { return k == kindWait || k == kindSignal }

// parent reports whether steps of the kind have child tasks.
func (k stepKind) parent() bool { return k == kindTask || k == kindEach }

// newSteps are the steps of a task that has not begun.
func newSteps(p *Plan) []StepState {
	steps := make([]StepState, len(p.Steps))
	for i := range steps {
		steps[i].kind = kindOf(p.Steps[i].Kind)
	}
	return steps
}

// resetSteps makes them so again.
func resetSteps(steps []StepState) {
	for i := range steps {
		steps[i] = StepState{kind: steps[i].kind}
	}
}

// StepOwn is what few steps have. It is never changed, only replaced, so that copies of a task may share it.
type StepOwn struct {
	Given   []byte // its own input, as the row that began it has it: see Step.Input; of an each: the list
	Signal  int64  // the journal row that has the signal's answer; 0: none has come
	Early   bool   // it came before the step began
	Code    int    // of an early refusal
	Refusal string // its text
}

// Count is how many children an each that has begun is to have, born or not: the elements of its list, counted at each
// call; 0 of other steps.
func (s *StepState) Count() int {
	if s.kind != kindEach || s.own == nil {
		return 0
	}
	return countElements(s.own.Given)
}

// Own is what few steps have; the zero value where the step has nothing of it.
func (s *StepState) Own() StepOwn {
	if s.own == nil {
		return StepOwn{}
	}
	return *s.own
}

// change replaces what few steps have.
func (s *StepState) change(f func(*StepOwn)) {
	own := s.Own()
	f(&own)
	s.own = &own
}

// Elements are the elements of a compact JSON array, as from and to in list. It takes the array for well-formed.
func Elements(list []byte) [][2]int {
	var all [][2]int
	eachElement(list, func(from, to int) { all = append(all, [2]int{from, to}) })
	return all
}

// countElements is how many elements a JSON array has.
func countElements(list []byte) int {
	n := 0
	eachElement(list, func(int, int) { n++ })
	return n
}

func eachElement(list []byte, yield func(from, to int)) {
	depth, from := 0, 1
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '"':
			for i++; i < len(list) && list[i] != '"'; i++ {
				if list[i] == '\\' {
					i++
				}
			}
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 && i > from {
				yield(from, i)
			}
		case c == ',' && depth == 1:
			yield(from, i)
			from = i + 1
		}
	}
}
