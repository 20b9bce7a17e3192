package wire

import (
	"encoding/json"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/taskform"
)

// What bounds a message about steps, and a wish for such messages.
const (
	StepsMax       = core.StepsMax // events of a message: all steps of a task may begin in one commit
	wantedBytesMax = 1024
)

// StepEvent is one thing that happened to a task before its end, as those who watch hear it. It is not stored.
type StepEvent struct {
	Partition int          `json:"partition"`
	ID        string       `json:"id"`
	Labels    string       `json:"labels,omitempty"` // as core.FormatLabels has them
	What      string       `json:"what"`             // operate's word for it
	State     core.State   `json:"status"`           // of the task, after it
	Seq       int64        `json:"seq"`              // journal row
	Step      string       `json:"step,omitempty"`
	Attempt   int          `json:"attempt,omitempty"`
	Error     string       `json:"error,omitempty"`
	At        core.Instant `json:"-"`
}

// Wanted is what someone watches: fields that are empty match everything.
type Wanted struct {
	Type  string `json:"type,omitempty"`
	ID    string `json:"id,omitempty"`
	Label string `json:"label,omitempty"` // key=value
}

type stepJSON struct {
	StepEvent
	At string `json:"at"`
}

type stepsJSON struct {
	V     int        `json:"v"`
	Type  string     `json:"type"`
	Lost  int        `json:"lost,omitempty"`
	Steps []stepJSON `json:"steps"`
}

// EncodeSteps is the JSON of step events of one type; lost is how many before them could not be told.
func EncodeSteps(taskType string, events []StepEvent, lost int) ([]byte, error) {
	j := stepsJSON{V: Version, Type: taskType, Lost: lost, Steps: make([]stepJSON, len(events))}
	for i := range events {
		j.Steps[i] = stepJSON{events[i], string(appendInstant(nil, events[i].At))}
	}
	return json.Marshal(j)
}

// DecodeSteps reads step events. Errors wrap ErrUndecodable.
func DecodeSteps(data []byte) (taskType string, events []StepEvent, lost int, err error) {
	var j stepsJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return "", nil, 0, fmt.Errorf("%w: steps: %w", ErrUndecodable, err)
	}
	if j.V != Version || len(j.Steps) > StepsMax || j.Lost < 0 {
		return "", nil, 0, fmt.Errorf("%w: steps: version %d with %d steps, want %d with at most %d", ErrUndecodable, j.V, len(j.Steps), Version, StepsMax)
	}
	events = make([]StepEvent, len(j.Steps))
	for i := range j.Steps {
		events[i] = j.Steps[i].StepEvent
		if events[i].At, err = taskform.Instant(j.Steps[i].At); err != nil {
			return "", nil, 0, fmt.Errorf("%w: step %d: at: %w", ErrUndecodable, i+1, err)
		}
	}
	return j.Type, events, j.Lost, nil
}

// EncodeWanted is the JSON of what someone watches.
func EncodeWanted(w Wanted) ([]byte, error) { return json.Marshal(w) }

// DecodeWanted reads it. Errors wrap ErrUndecodable.
func DecodeWanted(data []byte) (w Wanted, err error) {
	if n := len(data); n > wantedBytesMax {
		return w, fmt.Errorf("%w: wanted has %d bytes, want at most %d", ErrUndecodable, n, wantedBytesMax)
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return w, fmt.Errorf("%w: wanted: %w", ErrUndecodable, err)
	}
	return w, nil
}
