package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestRoomInEachStream: a stream that no room is made in keeps none from the others.
//
// covers: L2
func TestRoomInEachStream(t *testing.T) {
	var looked []string
	at := func(kind string) func(context.Context, int) error {
		return func(_ context.Context, number int) error {
			looked = append(looked, fmt.Sprint(kind, number))
			if number == 0 {
				return errors.New("partition 4 of stream \"old\", others of \"new\"")
			}
			return nil
		}
	}
	err := inEach(t.Context(), 2, at("tasks"), at("control"))
	if want := []string{"tasks0", "control0", "tasks1", "control1"}; err == nil || !slices.Equal(looked, want) {
		t.Errorf("looked at %v, want %v: %v", looked, want, err)
	}
}
