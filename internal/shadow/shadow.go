// Package shadow gives copies of an agent's dos to another one, which has no effects, and compares what both answer.
//
// [Run] listens beside the agent, so it changes nothing for it: the commands and their answers come to it as well. What
// keeps a copy from having an effect:
//
//   - it goes only to an agent of which every instance says in NATS's service discovery that it is a dry run;
//   - it has a header that agents of package duly refuse where they are none;
//   - its task, and so its key, is another one in each run;
//   - undos and probes are not copied.
package shadow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// Errors of [Run], beside an [option.Error].
var (
	ErrNoAgent = errors.New("no instance listens")
	ErrNotDry  = errors.New("it does not say that it is a dry run")
)

const (
	pendingMessages = 1 << 16 // messages that wait to be looked at; more are dropped, and counted
	lookEvery       = 5 * time.Second
	lookAnswer      = 250 * time.Millisecond // how long instances have to say what they are
	sweepEvery      = 100 * time.Millisecond
	slack           = time.Second // how long an answer may be on its way after the complete-by
	drainMost       = 30 * time.Second
	subscribeMost   = 10 * time.Second
)

// fence says which command a reply is about.
type fence struct {
	partition   int
	number, seq int64
}

// pair is one command with what both have answered.
type pair struct {
	core.Command // without payloads
	began        time.Time
	copy         string // reply subject of the copy
	real, shadow *answer
}

type answer struct {
	reply core.Reply
	after time.Duration
}

// run is one run. All of it happens on one goroutine.
type run struct {
	o      Options
	nc     *nats.Conn
	inbox  string // ends with a dot
	suffix string // of the tasks of copies
	came   chan *nats.Msg
	subs   []*nats.Subscription
	open   map[fence]*pair
	copies map[string]fence
	number int
	credit float64 // of the share: a copy is made when it is 1
	done   bool    // no more copies are made
	report *Report
}

// Run compares until o.For is over, o.Count commands are compared, or ctx ends, and then waits for answers that are due. Errors:
// an [option.Error]; one that wraps [ErrNoAgent] or [ErrNotDry], also when an instance comes later that is none; NATS.
func Run(ctx context.Context, nc *nats.Conn, o Options) (*Report, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	r := &run{
		o: o, nc: nc, inbox: nc.NewInbox() + ".", suffix: string(core.ChildMark) + "shadow-" + nuid.Next()[16:], came: make(chan *nats.Msg, pendingMessages),
		open: map[fence]*pair{}, copies: map[string]fence{}, report: &Report{Agent: o.Agent, Shadow: o.Shadow},
	}
	if err := r.isDry(ctx); err != nil {
		return nil, fmt.Errorf("shadow %s: %w", o.Shadow, err)
	}
	defer r.close()
	if err := r.listen(ctx); err != nil {
		return nil, fmt.Errorf("shadow of agent %s: %w", o.Agent, err)
	}
	if err := r.compare(ctx); err != nil {
		return nil, fmt.Errorf("shadow %s: %w", o.Shadow, err)
	}
	r.report.finish()
	return r.report, nil
}

// isDry asks every instance of the shadow what it is.
func (r *run) isDry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookAnswer)
	defer cancel()
	sub, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // gone already is fine
	subject, err := micro.ControlSubject(micro.InfoVerb, r.o.Names.ServiceName(r.o.Shadow), "")
	if err == nil {
		err = r.nc.PublishRequest(subject, sub.Subject, nil)
	}
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && n > 0:
			return nil
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return fmt.Errorf("%w as a NATS micro service %s", ErrNoAgent, r.o.Names.ServiceName(r.o.Shadow))
		case err != nil:
			return err
		}
		var info micro.Info
		if err := json.Unmarshal(msg.Data, &info); err != nil {
			return fmt.Errorf("an instance that cannot be read: %w", err)
		}
		if info.Metadata[wire.MetaAgent] != r.o.Shadow || info.Metadata[wire.MetaDryRun] != wire.DryRun {
			return fmt.Errorf("instance %s: %w", info.ID, ErrNotDry)
		}
	}
}

// listen subscribes to the agent's dos, to the answers, and to those of the shadow: all to one channel, so that they are seen
// in the order in which they came.
func (r *run) listen(ctx context.Context) error {
	n := r.o.Names
	for _, subject := range []string{n.CommandSubject(r.o.Agent, false), n.BatchSubject(r.o.Agent, false), n.PatternReplies(), n.PatternBatchReplies(r.o.Agent), r.inbox + "*"} {
		sub, err := r.nc.ChanSubscribe(subject, r.came)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		r.subs = append(r.subs, sub)
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeMost)
	defer cancel()
	return r.nc.FlushWithContext(ctx)
}

func (r *run) close() {
	for _, sub := range r.subs {
		_ = sub.Unsubscribe() // gone already is fine
	}
}

// compare takes messages until all is compared.
func (r *run) compare(ctx context.Context) error {
	sweep, look, end := time.NewTicker(sweepEvery), time.NewTicker(lookEvery), time.NewTimer(r.o.For)
	defer sweep.Stop()
	defer look.Stop()
	defer end.Stop()
	var drained <-chan time.Time
	stopped := ctx.Done()
	for {
		if r.o.Count > 0 && r.report.Compared >= r.o.Count {
			return nil
		}
		if r.done && drained == nil {
			drained = time.After(drainMost)
		}
		if r.done && len(r.open) == 0 {
			return nil
		}
		select {
		case msg := <-r.came:
			r.take(msg)
		case <-sweep.C:
			r.sweep(time.Now())
		case <-look.C:
			if err := r.isDry(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		case <-end.C:
			r.done = true
		case <-stopped:
			r.done, stopped = true, nil
		case <-drained:
			for f, p := range r.open {
				p.real = nil // nothing is known of what may still come
				r.end(f, p)
			}
			return nil
		}
	}
}

// take looks at one message.
func (r *run) take(msg *nats.Msg) {
	n := r.o.Names
	switch msg.Subject {
	case n.CommandSubject(r.o.Agent, false):
		partition, number, seq, err := n.ParseReply(msg.Reply)
		if err != nil {
			return // no scheduler's
		}
		cmd, err := wire.DecodeCommand(msg.Data)
		if err != nil {
			return // the agent answers that
		}
		cmd.Partition, cmd.Number, cmd.Seq = partition, number, seq
		r.command(&cmd)
		return
	case n.BatchSubject(r.o.Agent, false):
		_ = wire.DecodeBatchCommands(msg.Data, func(cmd core.Command, _ core.Token) { r.command(&cmd) }) // as above
		return
	}
	if f, ours := r.copies[msg.Subject]; ours {
		delete(r.copies, msg.Subject)
		if p := r.open[f]; p != nil {
			said, err := n.DecodeReply(n.ReplySubject(f.partition, f.number, f.seq), wire.Header(msg.Header), msg.Data, core.ResultBytesMax)
			if err == nil && msg.Header.Get("Status") != statusUnserved {
				p.shadow = &answer{said, time.Since(p.began)}
			}
			r.settle(f, p)
		}
		return
	}
	if partition, number, seq, err := n.ParseReply(msg.Subject); err == nil {
		if _, asked := r.open[fence{partition, number, seq}]; asked {
			if said, err := n.DecodeReply(msg.Subject, wire.Header(msg.Header), msg.Data, core.ResultBytesMax); err == nil {
				r.answered(said)
			}
		}
		return
	}
	_ = wire.DecodeBatchReplies(msg.Data, "", core.ResultBytesMax, r.answered) // of the rest none is known
}

// statusUnserved is the server's word that no instance listens.
const statusUnserved = "503"

// answered takes an answer of the agent.
func (r *run) answered(said core.Reply) {
	f := fence{said.Partition, said.Number, said.Seq}
	p := r.open[f]
	if p == nil || p.real != nil {
		return
	}
	said.Result = append([]byte(nil), said.Result...)
	p.real = &answer{said, time.Since(p.began)}
	r.settle(f, p)
}

// command copies a command to the shadow, if it is one of the share and there is room.
func (r *run) command(cmd *core.Command) {
	r.report.Seen++
	if r.done {
		return
	}
	if r.credit += float64(r.o.Percent) / 100; r.credit < 1 {
		return
	}
	r.credit--
	f := fence{cmd.Partition, cmd.Number, cmd.Seq}
	if len(r.open) >= r.o.InFlight || r.open[f] != nil {
		r.report.Dropped++
		return
	}
	r.number++
	p := &pair{Command: *cmd, began: time.Now(), copy: r.inbox + strconv.Itoa(r.number)}
	other := *cmd
	other.Task += r.suffix
	if core.CheckTaskID(other.Task) != nil {
		r.report.Dropped++ // a child's id that has no room
		return
	}
	copied := &nats.Msg{Subject: r.o.Names.CommandSubject(r.o.Shadow, false), Reply: p.copy, Header: nats.Header{wire.HeaderDryRun: {wire.DryRun}}, Data: wire.AppendCommand(nil, &other)}
	if r.nc.PublishMsg(copied) != nil {
		r.report.Dropped++
		return
	}
	p.Input, p.Results, p.Result = nil, nil, nil
	r.open[f], r.copies[p.copy] = p, f
	r.report.Copied++
}

// settle compares a pair if both have answered.
func (r *run) settle(f fence, p *pair) {
	if p.real != nil && p.shadow != nil {
		r.end(f, p)
	}
}

// end ends a pair.
func (r *run) end(f fence, p *pair) {
	delete(r.open, f)
	delete(r.copies, p.copy)
	r.report.judge(p, &r.o)
}

// sweep ends the pairs whose time is over.
func (r *run) sweep(now time.Time) {
	for f, p := range r.open {
		if now.Sub(p.began) > p.Left+slack {
			r.end(f, p)
		}
	}
	for _, sub := range r.subs {
		if n, err := sub.Dropped(); err == nil {
			r.report.Missed = max(r.report.Missed, n)
		}
	}
}
