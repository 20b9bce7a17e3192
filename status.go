package duly

import (
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// State is where a task is in its life.
type State string

// The states a [Status] may tell.
const (
	StateReceived   State = core.StatusReceived         // stored; will end
	StateProcessing State = State(core.StateProcessing) // a step runs or waits for its next attempt
	StatePending    State = State(core.StatePending)    // waits for an agent with room, or out a pause
	StateUndoing    State = State(core.StateUndoing)    // being undone
	StateProcessed  State = State(core.StateProcessed)  // every step is done; the end
	StateUndone     State = State(core.StateUndone)     // nothing of it is left; the end
	StateError      State = State(core.StateError)      // "error": operator action required; the end, unless resubmitted
	StateRefused    State = core.StatusRefused          // never became a task; the end
)

// Ended reports whether the state is one a task rests in. Of a refusal it says so too.
func (s State) Ended() bool { return s == StateRefused || core.State(s).Ended() }

// Status is one piece of news about a task.
type Status struct {
	Task  string
	Type  string
	State State
	Step  string // that failed, if one did
	Error string // why, of undone, error and refused
	Code  int    // of refused, as HTTP's: 400, 409, 413
	At    time.Time
}

// ParseStatus reads one message sent to the subject of [ReplyTo]. Error: it is
// not such a message.
func ParseStatus(data []byte) (Status, error) {
	s, err := wire.DecodeStatus(data)
	return statusOf(s), err
}
