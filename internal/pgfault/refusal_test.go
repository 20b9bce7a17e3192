package pgfault_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/pgfault"
)

// A request that is refused is not run, and its transaction is over; as often as was
// said, and only the requests that are meant.
func TestRefusal(t *testing.T) {
	through, direct, p := faulty(t, pgfault.Faults{})
	p.Refuse(pgfault.Refusal{Holds: "VALUES (2)", Code: "53100", Message: "disk full", Times: 2}, pgfault.Refusal{Holds: "VALUES", Least: 1000, Code: "08P01"})
	begin(t, through, false)
	for _, step := range []struct{ text, state string }{
		{"INSERT INTO x VALUES (1)", ""}, {"INSERT INTO x VALUES (2)", "53100"}, {"INSERT INTO x VALUES (3)", "25P02"}, {"ROLLBACK", ""},
		{"INSERT INTO x VALUES (2)", "53100"}, {"INSERT INTO x VALUES (2)", ""},
		{"INSERT INTO x VALUES (4) --" + strings.Repeat("x", 1000), "08P01"}, {"INSERT INTO x VALUES (4)", ""},
	} {
		if _, err := through.Exec(t.Context(), step.text); state(err) != step.state {
			t.Errorf("%.30s: %v, want %q", step.text, err, step.state)
		}
	}
	if n := rows(t, direct); n != 2 || p.Refused() != 3 {
		t.Errorf("%d rows, want 2; %d refused, want 3", n, p.Refused())
	}
	p.Refuse(pgfault.Refusal{Code: "57P01", Fatal: true})
	if _, err := through.Exec(t.Context(), "SELECT 1"); state(err) != "57P01" || !through.IsClosed() {
		t.Errorf("%v, closed %v", err, through.IsClosed())
	}
	p.Refuse()
	if _, err := connect(t, p.URL()).Exec(t.Context(), "SELECT 1"); err != nil {
		t.Error(err)
	}
}

// A server that does not answer is waited for, also by who connects.
func TestMute(t *testing.T) {
	through, _, p := faulty(t, pgfault.Faults{})
	p.Refuse(pgfault.Refusal{Mute: true})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := through.Exec(ctx, "SELECT 1"); ctx.Err() == nil {
		t.Errorf("answered: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if c, err := pgx.Connect(ctx, p.URL()); err == nil {
		t.Error("connected", c.Close(t.Context()))
	}
	if p.Refused() != 2 {
		t.Errorf("%d refused", p.Refused())
	}
}
