package core

// EventKind says what happened.
type EventKind int

const (
	EventClaim EventKind = iota // none of the lines of comment
	EventOther
)

type Event struct{ Kind EventKind }

const InATest, DefaultUnused = 1, 2

type StepState struct {
	A, B int
	own  *own
	c    struct{ X int }
}

type own struct{ D, E, F int }

func Use(s StepState) int { return s.own.D + s.c.X }
