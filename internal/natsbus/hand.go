package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/wire"
)

// Hand submits one task at the request endpoint, and returns its position in its partition's stream when it
// is stored. Submitting the same task again is no error. Errors: a *wire.RefusedError; or no readable answer
// came before ctx ended.
func (c *Conn) Hand(ctx context.Context, f submit.Form) (place uint64, err error) {
	answer, err := Request(ctx, c.nc, &nats.Msg{Subject: c.names.SubmitSubject(f.Type, f.ID), Header: f.Header(), Data: f.Input})
	if errors.Is(err, nats.ErrNoResponders) {
		return 0, fmt.Errorf("task %s: no node with the role ingest listens: %w", f.ID, err)
	}
	if err != nil {
		return 0, fmt.Errorf("task %s: %w", f.ID, publishError(err))
	}
	stored, err := wire.DecodeSubmitAnswer(answer.Data)
	if err != nil {
		return 0, fmt.Errorf("task %s: %w", f.ID, err)
	}
	return stored.Seq, nil
}
