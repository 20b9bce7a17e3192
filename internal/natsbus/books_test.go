package natsbus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/wire"
)

// TestBooks: an agent answers for its books over NATS; errors reach the asker in words.
func TestBooks(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	at := time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)
	if _, err := c.AskBooks(within(t), "payment.charge", wire.BooksQuestion{Limit: 10}); !errors.Is(err, wire.ErrNoBooks) {
		t.Errorf("before there are any: %v", err)
	}
	sub, err := c.ServeBooks(t.Context(), "payment.charge", func(_ context.Context, q wire.BooksQuestion) (wire.BooksAnswer, error) {
		switch {
		case q.After == "broken":
			return wire.BooksAnswer{}, errors.New("the books are at the accountant's")
		case q.After == "senseless":
			return wire.BooksAnswer{Effects: []wire.BooksEffect{{Key: "charge", Times: 1}}}, nil
		case len(q.Keys) > 0:
			return wire.BooksAnswer{Effects: []wire.BooksEffect{{Key: q.Keys[0], Times: 2, At: at}}}, nil
		}
		return wire.BooksAnswer{Effects: []wire.BooksEffect{{Key: "o-1/charge/0", Times: 1, At: at}}, Next: "o-1"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	a, err := c.AskBooks(within(t), "payment.charge", wire.BooksQuestion{Since: at, Limit: 10})
	if err != nil || len(a.Effects) != 1 || a.Effects[0].Key != "o-1/charge/0" || !a.Effects[0].At.Equal(at) || a.Next != "o-1" {
		t.Errorf("a page: %+v, %v", a, err)
	}
	if a, err = c.AskBooks(within(t), "payment.charge", wire.BooksQuestion{Keys: []string{"o-2/charge/3"}}); err != nil || a.Effects[0].Times != 2 {
		t.Errorf("by key: %+v, %v", a, err)
	}
	for name, test := range map[string]struct {
		q    wire.BooksQuestion
		want string
	}{
		"no limit":  {wire.BooksQuestion{}, "limit 0, want 1 to 1000"},
		"too much":  {wire.BooksQuestion{Limit: 1001}, "limit 1001, want 1 to 1000"},
		"keys":      {wire.BooksQuestion{Keys: make([]string, 1001)}, "1001 keys, the limit is 1000"},
		"broken":    {wire.BooksQuestion{Limit: 1, After: "broken"}, "at the accountant's"},
		"senseless": {wire.BooksQuestion{Limit: 1, After: "senseless"}, `effect "charge"`},
	} {
		if _, err := c.AskBooks(within(t), "payment.charge", test.q); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if _, err := c.AskBooks(within(t), "pay ment", wire.BooksQuestion{Limit: 1}); err == nil {
		t.Error("the books of an agent whose name cannot be were asked for")
	}
}
