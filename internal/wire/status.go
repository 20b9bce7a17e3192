package wire

import (
	"encoding/json"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/taskform"
)

// EventsMax bounds the endings in one message of the event stream.
const EventsMax = 512

// AppendStatus appends the JSON of a status: what a submitter's private subject,
// duly.live and the refused events carry.
func AppendStatus(dst []byte, s *core.Status) []byte {
	dst = append(dst, `{"v":1,"id":`...)
	dst = appendString(dst, s.ID)
	dst = appendMember(dst, "type", s.Type)
	dst = appendMember(dst, "status", s.Status)
	if s.Error != "" {
		dst = appendMember(dst, "error", s.Error)
	}
	if s.Code != 0 {
		dst = appendNumber(dst, "code", int64(s.Code))
	}
	dst = appendTime(dst, "at", s.At)
	return append(dst, '}')
}

// AppendEnding appends the JSON of one ending: what a lone undone or error event
// carries. DecodeStatus reads it too.
func AppendEnding(dst []byte, e *core.Ending) []byte {
	dst = append(dst, `{"v":1,"id":`...)
	dst = appendString(dst, e.ID)
	dst = appendMember(dst, "type", e.Type)
	dst = appendMember(dst, "status", string(e.State))
	dst = appendEnding(dst, e)
	return append(dst, '}')
}

// appendEnding appends what a pack says of each ending besides its id.
func appendEnding(dst []byte, e *core.Ending) []byte {
	dst = appendNumber(dst, "partition", int64(e.Partition))
	dst = appendNumber(dst, "end", e.EndNumber)
	dst = appendNumber(dst, "seq", e.Seq)
	if e.Step != "" {
		dst = appendMember(dst, "step", e.Step)
	}
	if e.Error != "" {
		dst = appendMember(dst, "error", e.Error)
	}
	if e.Labels != "" {
		dst = appendMember(dst, "labels", e.Labels)
	}
	dst = appendTime(dst, "created_at", e.CreatedAt)
	return appendTime(dst, "at", e.At)
}

// BeginEvents begins a pack of endings of one type and state; AppendEvent and EndEvents
// complete it.
func BeginEvents(dst []byte, taskType string, state core.State) []byte {
	dst = append(dst, `{"v":1,"type":`...)
	dst = appendString(dst, taskType)
	dst = appendMember(dst, "status", string(state))
	return append(dst, `,"events":[`...)
}

// AppendEvent appends an ending to a pack that holds n already.
func AppendEvent(dst []byte, n int, e *core.Ending) []byte {
	if n > 0 {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, e.ID)
	dst = appendEnding(dst, e)
	return append(dst, '}')
}

// EndEvents ends a pack.
func EndEvents(dst []byte) []byte { return append(dst, ']', '}') }

type eventJSON struct {
	V         int         `json:"v"`
	ID        string      `json:"id"`
	Type      string      `json:"type"`
	Status    string      `json:"status"`
	Partition int         `json:"partition"`
	End       int64       `json:"end"`
	Seq       int64       `json:"seq"`
	Step      string      `json:"step"`
	Error     string      `json:"error"`
	Labels    string      `json:"labels"`
	Code      int         `json:"code"`
	CreatedAt string      `json:"created_at"`
	At        string      `json:"at"`
	Events    []eventJSON `json:"events"`
}

// DecodeStatus reads a status or a single ending. Errors wrap ErrUndecodable.
func DecodeStatus(data []byte) (core.Status, error) {
	e, err := decodeEvent(data)
	if err != nil {
		return core.Status{}, fmt.Errorf("%w: status: %w", ErrUndecodable, err)
	}
	at, err := taskform.Instant(e.At)
	if err != nil {
		return core.Status{}, fmt.Errorf("%w: status of %s: %w", ErrUndecodable, Short(e.ID), err)
	}
	return core.Status{ID: e.ID, Type: e.Type, Status: e.Status, Error: e.Error, Code: e.Code, At: at}, nil
}

// DecodeEndings reads a message of the event stream about tasks that ended: a
// pack or a single one. Errors wrap ErrUndecodable.
func DecodeEndings(data []byte) ([]core.Ending, error) {
	whole, err := decodeEvent(data)
	if err != nil {
		return nil, fmt.Errorf("%w: event: %w", ErrUndecodable, err)
	}
	events := whole.Events
	if events == nil {
		events = []eventJSON{whole}
	}
	endings := make([]core.Ending, len(events))
	for i := range events {
		events[i].Type, events[i].Status = whole.Type, whole.Status
		if endings[i], err = events[i].ending(); err != nil {
			return nil, fmt.Errorf("%w: event %d: %w", ErrUndecodable, i+1, err)
		}
	}
	return endings, nil
}

func decodeEvent(data []byte) (eventJSON, error) {
	var e eventJSON
	if err := json.Unmarshal(data, &e); err != nil {
		return e, err
	}
	if e.V != Version {
		return e, fmt.Errorf("version %d, want %d", e.V, Version)
	}
	return e, nil
}

func (e *eventJSON) ending() (core.Ending, error) {
	state := core.State(e.Status)
	if !state.Ended() {
		return core.Ending{}, fmt.Errorf("task %s: %q is not the state of a task that ended", Short(e.ID), Short(e.Status))
	}
	created, err := taskform.Instant(e.CreatedAt)
	if err != nil {
		return core.Ending{}, fmt.Errorf("task %s: created_at: %w", Short(e.ID), err)
	}
	at, err := taskform.Instant(e.At)
	if err != nil {
		return core.Ending{}, fmt.Errorf("task %s: at: %w", Short(e.ID), err)
	}
	return core.Ending{Partition: e.Partition, EndNumber: e.End, ID: e.ID, Type: e.Type, State: state, Seq: e.Seq,
		Step: e.Step, Error: e.Error, Labels: e.Labels, CreatedAt: created, At: at}, nil
}
