package natsbus

import (
	"context"
	"testing"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/submit/submittest"
)

// TestRequestCarriesEveryField: what is handed to the request endpoint says all that a submission can say.
func TestRequestCarriesEveryField(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	got := make(chan *SubmitRequest, 1)
	sub, err := c.ServeSubmit(func(r *SubmitRequest) {
		got <- r
		r.Accept(names.StreamTasks(), 1, 1, "")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Stop()
	sent := submittest.Full(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.Hand(ctx, sent); err != nil {
		t.Fatal(err)
	}
	submittest.Same(t, "request", receive(t, "the submission", got).Form, sent, map[string]string{"Ago": "of a node that reads an outbox"})
}
