package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/wire"
)

// Bounds of what clients read over NATS: requests at a time, and how long the state
// store may take for one.
const (
	readsMax     = 32
	readMax      = 2 * time.Second
	readsRetry   = 200 * time.Millisecond
	answerMargin = 1 << 10 // of a message, for what stands around the answer
)

// viewReader is what of the state store clients read.
type viewReader interface {
	Get(ctx context.Context, partition int, id string) (core.View, error)
	List(ctx context.Context, f core.Filter) (core.Page, error)
}

// reads serves duly.ask.get and duly.ask.list, a bounded number at a time, so that a slow
// store holds up no other request.
type reads struct {
	*bounded
	node   *Node
	store  viewReader
	causes *causes
	ctx    context.Context
	answer int // bytes that an answer may have
}

func newReads(ctx context.Context, n *Node) *reads {
	return &reads{node: n, store: n.store, causes: newCauses(n.store, n.now), bounded: newBounded(readsMax), ctx: ctx, answer: n.conn.MaxPayload() - answerMargin}
}

// serve takes a request and answers it from a goroutine of its own; wait waits for all.
func (s *reads) serve(r *natsbus.ReadRequest) {
	begin := s.try
	if r.OfType {
		begin = s.tryCommon
	}
	if !begin(func() {
		ctx, cancel := context.WithTimeout(s.ctx, readMax)
		defer cancel()
		data, code, err := s.read(ctx, r)
		switch {
		case err == nil:
			r.Answer(data)
		case code == 503:
			s.node.log.Debug("a request to read tasks was not answered", "task", r.ID, "error", err)
			r.Reject(code, ingest.CauseStore, say.Of("refuse.store"), readsRetry)
		case code == 400:
			r.Reject(code, ingest.CauseQuery, err.Error(), 0)
		default:
			r.Reject(code, ingest.CauseOf(code), err.Error(), 0)
		}
	}) {
		r.Reject(429, ingest.CauseFull, say.Of("refuse.reads"), readsRetry)
	}
}

// read gives the answer, or a code as HTTP's and why there is none.
func (s *reads) read(ctx context.Context, r *natsbus.ReadRequest) (data []byte, code int, err error) {
	if r.ID == "" {
		return s.list(ctx, r.List)
	}
	view, err := s.store.Get(ctx, wire.PartitionOf(r.ID, s.node.cfg.Partitions), r.ID)
	switch {
	case errors.Is(err, core.ErrNotFound) || err == nil && view.Type != r.Type:
		return nil, 404, fmt.Errorf("no task %s of type %s", core.QuoteShort(r.ID), core.QuoteShort(r.Type))
	case err != nil:
		return nil, 503, err
	}
	s.causes.explain(ctx, &view)
	if data, err = api.EncodeTask(&view); err == nil && len(data) > s.answer {
		// What a message cannot hold is left out; HTTP shows it.
		view.Input = nil
		for i := range view.Steps {
			view.Steps[i].Result = nil
			view.Steps[i].Error = core.ShortText(view.Steps[i].Error, 256)
		}
		data, err = api.EncodeTask(&view)
	}
	if err == nil && len(data) > s.answer { // of many steps with conditions and errors
		for i := range view.Steps {
			is := &view.Steps[i]
			is.When, is.Error, is.Undo.Error = "", "", ""
		}
		data, err = api.EncodeTask(&view)
	}
	return data, 500, err
}

// list reads a page that fits a message: a shorter one, if need be.
func (s *reads) list(ctx context.Context, f core.Filter) (data []byte, code int, err error) {
	for {
		page, err := s.store.List(ctx, f)
		switch {
		case errors.Is(err, core.ErrCursor):
			return nil, 400, err
		case err != nil:
			return nil, 503, err
		}
		if data, err = api.EncodePage(&page); err != nil || len(data) <= s.answer || f.Limit == 1 {
			return data, 500, err
		}
		f.Limit = max(1, f.Limit/2)
	}
}
