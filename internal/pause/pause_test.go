package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/pause"
)

func TestFor(t *testing.T) {
	for _, test := range []struct {
		name       string
		ends, d    time.Duration // ends: of the context, from now
		want       error
		wantWaited time.Duration
	}{
		{"the pause is over first", time.Hour, time.Minute, nil, time.Minute},
		{"the context ends first", time.Minute, time.Hour, context.DeadlineExceeded, time.Minute},
		{"nothing to wait for", time.Hour, 0, nil, 0},
		{"less than nothing", time.Hour, -time.Hour, nil, 0},
		{"the context has ended", 0, -time.Hour, context.DeadlineExceeded, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.ends)
				defer cancel()
				began := time.Now()
				if err := pause.For(ctx, test.d); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if waited := time.Since(began); waited != test.wantWaited {
					t.Errorf("waited %v, want %v", waited, test.wantWaited)
				}
			})
		})
	}
}
