package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/operate"
)

// events is operate.Events on the event stream: how tasks ended. The place of an event is <message>.<ending in it>.
type events struct{ conn *natsbus.Conn }

// Follow implements operate.Events.
func (e events) Follow(ctx context.Context, after string, f operate.EventFilter, send func(operate.Event) error) error {
	from, index, err := placeOf(after)
	if err != nil {
		return err
	}
	err = e.conn.FollowEvents(ctx, f.Type, from, func(seq uint64, endings []core.Ending) error {
		for i := range endings {
			if seq == from && i <= index {
				continue // it was told
			}
			if is := eventOf(seq, i, &endings[i]); (f.Task == "" || f.Task == is.Task) && (f.Status == "" || f.Status == is.Status) {
				if err := send(is); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if errors.Is(err, natsbus.ErrPlaceGone) {
		return &operate.Refusal{Code: http.StatusGone, Field: "Last-Event-ID", Detail: fmt.Sprintf("event %s is not there any more: begin without it, and read the list for what was missed", core.QuoteShort(after))}
	}
	return err
}

func eventOf(seq uint64, index int, e *core.Ending) operate.Event {
	return operate.Event{
		ID: fmt.Sprintf("%d.%d", seq, index), Type: e.Type, Task: e.ID, Status: e.State, Partition: e.Partition, End: e.EndNumber,
		Step: e.Step, Error: e.Error, At: e.At.Time(),
	}
}

// placeOf reads a place; an empty one is now.
func placeOf(after string) (seq uint64, index int, err error) {
	if after == "" {
		return 0, 0, nil
	}
	number, part, ok := strings.Cut(after, ".")
	seq, errSeq := strconv.ParseUint(number, 10, 64)
	index, errIndex := strconv.Atoi(part)
	if !ok || errSeq != nil || errIndex != nil || seq == 0 || index < 0 {
		return 0, 0, &operate.Refusal{Code: http.StatusBadRequest, Field: "Last-Event-ID", Detail: fmt.Sprintf("event id %s, want <message>.<number> as an event had it", core.QuoteShort(after))}
	}
	return seq, index, nil
}
