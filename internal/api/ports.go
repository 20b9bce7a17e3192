package api

import (
	"context"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
)

// Submitter is where the API hands submissions in: an [ingest.Ingest].
type Submitter interface {
	// Submit takes a request and answers it once, without waiting.
	Submit(ingest.Request)
	// Late refuses what would begin too late to be done; nil: Submit may take it. Its input is not looked at.
	Late(*submit.Form) *ingest.Refusal
}

// Reader reads tasks from the state store for the HTTP API.
type Reader interface {
	// Get returns the task of that id with its steps. Error: core.ErrNotFound.
	Get(ctx context.Context, partition int, id string) (core.View, error)
	// Existing returns those of the ids that are tasks of the partition.
	Existing(ctx context.Context, partition int, ids []string) ([]core.Existing, error)
	// List returns one page of tasks without their steps.
	List(ctx context.Context, f core.Filter) (core.Page, error)
	// Cursor returns the last contiguous committed position of the partition in
	// the task stream.
	Cursor(ctx context.Context, partition int) (uint64, error)
}

// Controls stores requests about tasks that exist.
type Controls interface {
	// Ask returns once the request is stored in the partition's control stream.
	Ask(ctx context.Context, partition int, c core.Control) (seq uint64, err error)
}
