package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
)

// eventSource is operate.Events on the event stream of NATS: how tasks ended, and what was refused. The id of an event is
// <position>.<index>.
type eventSource struct{ conn *natsbus.Conn }

// Follow implements operate.Events.
func (s eventSource) Follow(ctx context.Context, after string, f operate.EventFilter, send func(operate.Event) error) error {
	place, bad := eventPlace(after)
	if bad != nil {
		return bad
	}
	err := s.conn.FollowEvents(ctx, f.Type, f.Status, place, func(at natsbus.EventPlace, e core.Ending) error {
		if f.Task != "" && e.ID != f.Task {
			return nil
		}
		return send(operate.Event{ID: fmt.Sprintf("%d.%d", at.Seq, at.Index), Type: e.Type, Task: e.ID, Status: e.State, Partition: e.Partition, End: e.EndNumber,
			Step: e.Step, Error: e.Error, At: e.At.Time()})
	})
	if errors.Is(err, natsbus.ErrGone) {
		return &operate.Refusal{Code: 400, Field: "Last-Event-ID", Detail: fmt.Sprintf("event %s is not in the stream any more; begin without an id, and read what happened meanwhile from the lists", core.QuoteShort(after))}
	}
	return err
}

// eventPlace reads the id of an event; empty is now.
func eventPlace(id string) (natsbus.EventPlace, *operate.Refusal) {
	if id == "" {
		return natsbus.EventPlace{}, nil
	}
	seq, index, ok := strings.Cut(id, ".")
	at, err1 := strconv.ParseUint(seq, 10, 64)
	i, err2 := strconv.ParseUint(index, 10, 31)
	if !ok || err1 != nil || err2 != nil || at == 0 {
		return natsbus.EventPlace{}, &operate.Refusal{Code: 400, Field: "Last-Event-ID", Detail: fmt.Sprintf("Last-Event-ID is %s, want the id of an event, as 17.0", core.QuoteShort(id))}
	}
	return natsbus.EventPlace{Seq: at, Index: int(i)}, nil
}
