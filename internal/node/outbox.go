package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/telemetry"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema/postgres"
)

// condOutbox is the condition that outboxes are relayed.
const condOutbox = "outbox"

// outboxLook is how often it is counted what stands in an outbox.
const outboxLook = 10 * time.Second

// outbox is one that this node relays.
type outbox struct {
	name  string
	table *postgres.Outbox
	relay *ingest.Relay

	mu       sync.Mutex
	failed   error // why rows cannot be taken; nil: they can
	standing ingest.Standing
	known    bool // standing has been read
}

// outboxCondition is what is told of outboxes.
func (n *Node) outboxCondition() ground.Condition {
	return ground.Condition{
		Name: condOutbox, Shared: true, Each: n.probeOutboxes,
	}
}

// probeOutboxes are those in trouble, as they were when they were last looked at.
func (n *Node) probeOutboxes(context.Context) []ground.Found {
	var all []ground.Found
	for _, o := range n.outboxes() {
		if err := o.trouble(); err != nil {
			all = append(all, ground.Found{Key: o.name, Err: fmt.Errorf("%s: %w", o.name, err)})
		}
	}
	return all
}

func (o *outbox) trouble() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return o.failed
	}
	return o.standing.Trouble()
}

// outboxes are those that this node relays now.
func (n *Node) outboxes() []*outbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.relays
}

// openOutboxes opens the outboxes of the configuration; end closes them.
func (n *Node) openOutboxes(ctx context.Context, in *ingest.Ingest) (all []*outbox, end func(), err error) {
	end = func() {
		for _, o := range all {
			o.table.Close()
		}
	}
	wanted, err := n.cfg.Outboxes()
	if err != nil {
		return nil, end, err
	}
	for _, w := range wanted {
		table, err := postgres.OpenOutbox(ctx, w.URL)
		if err != nil {
			end()
			return nil, end, fmt.Errorf("outbox %s: %w", w.Name, err)
		}
		o := &outbox{name: w.Name, table: table}
		o.relay = ingest.NewRelay(ingest.RelayConfig{Interval: n.cfg.OutboxInterval, Existing: n.existing, Unread: scheduleTasks{n}.Unread, Report: o.report}, outboxRows{table}, in)
		all = append(all, o)
	}
	return all, end, nil
}

// existing looks up the task of an id; nil: there is none.
func (n *Node) existing(ctx context.Context, id string) (*core.Existing, error) {
	all, err := n.store.Existing(ctx, wire.PartitionOf(id, n.cfg.Partitions), []string{id})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// relayOutboxes relays until ctx ends.
func (n *Node) relayOutboxes(ctx context.Context, all []*outbox) {
	n.setOutboxes(all)
	defer n.setOutboxes(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, o := range all {
		wg.Go(func() { o.relay.Run(ctx) })
		wg.Go(func() { o.look(ctx) })
	}
}

func (n *Node) setOutboxes(all []*outbox) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.relays = all
}

// report hears whether rows can be taken.
func (o *outbox) report(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = err
}

// look counts from time to time what stands in the outbox, until ctx ends.
func (o *outbox) look(ctx context.Context) {
	for {
		o.counted(o.table.Standing(ctx))
		if pause.For(ctx, outboxLook) != nil {
			return
		}
	}
}

// counted keeps what stands in the outbox. What cannot be counted is not known: that the database is away is told by who
// takes the rows.
func (o *outbox) counted(s postgres.OutboxStanding, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = err == nil
	o.standing = ingest.Standing{}
	if err != nil {
		return
	}
	o.standing = ingest.Standing{Waiting: s.Waiting, Oldest: s.Oldest, Refused: s.Refused}
	if f := s.First; f != nil {
		o.standing.First = say.Of("alert.outbox", "task", core.QuoteShort(f.Task), "type", core.QuoteShort(f.Type), "text", f.Reason, "code", f.Code)
	}
}

// Metrics tells of the outbox; what is not known is not shown.
func (o *outbox) Metrics(to *telemetry.Scrape) {
	stats := o.relay.Stats()
	to.Count("duly_outbox_relayed_total", stats.Relayed, o.name)
	to.Count("duly_outbox_put_off_total", stats.PutOff, o.name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known {
		to.Count("duly_outbox_waiting", o.standing.Waiting, o.name)
		to.Put("duly_outbox_oldest_seconds", o.standing.Oldest.Seconds(), o.name)
		to.Count("duly_outbox_refused", o.standing.Refused, o.name)
	}
}

// outboxRows is ingest.Outbox on a table.
type outboxRows struct{ table *postgres.Outbox }

// Take implements ingest.Outbox.
func (o outboxRows) Take(ctx context.Context, most int, hand func(context.Context, []ingest.Written) []ingest.Verdict) (int, error) {
	return o.table.Take(ctx, most, func(ctx context.Context, rows []postgres.OutboxRow) []postgres.OutboxVerdict {
		written := make([]ingest.Written, len(rows))
		for i := range rows {
			written[i] = writtenOf(&rows[i])
		}
		judged := hand(ctx, written)
		verdicts := make([]postgres.OutboxVerdict, len(judged))
		for i, v := range judged {
			verdicts[i] = postgres.OutboxVerdict{Number: v.Row, Stored: v.Refused == nil, Again: v.Again}
			if v.Refused != nil {
				verdicts[i].Code, verdicts[i].Reason = v.Refused.Code, v.Refused.Description
			}
		}
		return verdicts
	})
}

// writtenOf makes a request of a row. What is wrong with its headers is told for good: nothing of them is left out.
func writtenOf(row *postgres.OutboxRow) ingest.Written {
	w := ingest.Written{Row: row.Number, Tries: row.Tries, Request: ingest.Request{Form: submit.Form{Type: row.Type, ID: row.Task, Input: row.Input, Ago: row.Age}}}
	if bad, ok := errors.AsType[*submit.Error](w.Request.ReadObject(row.Headers)); ok {
		w.Unfit = ingest.RefuseForm(bad)
	}
	return w
}

// outboxURLs are those that may have passwords, also of settings that are refused.
func outboxURLs(cfg *config.Config) []string {
	var all []string
	for _, o := range cfg.Outbox {
		_, url, _ := strings.Cut(o, "=")
		all = append(all, url)
	}
	return all
}
