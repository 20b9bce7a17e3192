package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/scheduler"
)

// ownerBus is scheduler.Bus on NATS.
type ownerBus struct {
	n      *Node
	sender *natsbus.Sender
	probes *probes
}

// Probe implements scheduler.Bus.
func (b ownerBus) Probe(q scheduler.Question, said func(core.Probe)) { b.probes.begin(q, said) }

// Send implements scheduler.Bus.
func (b ownerBus) Send(cmds []core.Command) {
	if b.n.tracer != nil {
		for i := range cmds {
			cmds[i].Trace = b.n.tracer.Command(&cmds[i])
		}
	}
	if err := b.sender.Send(cmds); err != nil {
		b.n.log.Debug("commands not sent; their complete-by recovers them", "error", err)
	}
}

// replies brings what comes in answer to batches to the inboxes of the
// partitions, by partition.
type replies []atomic.Pointer[scheduler.Inbox]

// of is the inbox of a partition; nil: it is not served here any more, and its
// owner sends the commands again.
func (r replies) of(partition int) *scheduler.Inbox {
	if partition < 0 || partition >= len(r) {
		return nil
	}
	return r[partition].Load()
}

func (r replies) reply(reply core.Reply) {
	if in := r.of(reply.Partition); in != nil {
		in.Reply(reply)
	}
}

func (r replies) unserved(reply core.Reply) {
	if in := r.of(reply.Partition); in != nil {
		in.Unserved(reply)
	}
}

// Publish implements scheduler.Bus.
func (b ownerBus) Publish(endings []core.Ending, done func(error)) {
	b.n.conn.PublishEndings(endings, done)
}

// Notify implements scheduler.Bus.
func (b ownerBus) Notify(subject string, status core.Status) { b.n.conn.Notify(subject, status) }

// Live implements scheduler.Bus.
func (b ownerBus) Live(status core.Status) { b.n.conn.Live(status) }

// Record implements scheduler.Bus.
func (b ownerBus) Record(all []core.Evidence) { b.n.conn.Record(all) }

// Refuse implements scheduler.Bus. Without it the messages must not be
// acknowledged, so it tries until the stream takes them.
func (b ownerBus) Refuse(ctx context.Context, refused []core.Status) error {
	return b.n.persist(ctx, "refusals", func() error { return b.n.conn.PublishRefusals(ctx, refused) })
}

// Dead implements scheduler.Bus.
func (b ownerBus) Dead(ctx context.Context, partition int, sub core.Submission, cause string) error {
	data := wire.AppendPack(nil, []core.Submission{sub})
	return b.n.persist(ctx, "dead letter", func() error {
		return b.n.conn.Dead(ctx, b.n.conn.StreamTasks(partition), b.n.conn.Names().PackSubject(partition), data, cause, nil)
	})
}

// persist tries until it works or ctx ends.
func (n *Node) persist(ctx context.Context, what string, do func() error) error {
	const first, most = 200 * time.Millisecond, 5 * time.Second
	for tries := 1; ; tries++ {
		err := do()
		if err == nil {
			if tries > 1 {
				n.report(condStoring, nil)
			}
			return nil
		}
		if ctx.Err() == nil {
			n.report(condStoring, fmt.Errorf("%s: %w", what, err))
		}
		if pause.For(ctx, core.Backoff(first, most, tries, 1)) != nil {
			n.report(condStoring, nil) // it is not tried any more
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}

// ownerWires is scheduler.Wires on NATS.
type ownerWires struct {
	n       *Node
	replies replies
	moved   chan struct{} // has an element when other partitions are listened to
}

func newOwnerWires(n *Node, r replies) ownerWires { return ownerWires{n, r, make(chan struct{}, 1)} }

// listens are the partitions that are listened to.
func (w ownerWires) listens() (all []int) {
	for p := range w.replies {
		if w.replies[p].Load() != nil {
			all = append(all, p)
		}
	}
	return all
}

// listened notes that other partitions are listened to.
func (w ownerWires) listened() {
	select {
	case w.moved <- struct{}{}:
	default: // that is known
	}
}

// Ground implements scheduler.Wires.
func (w ownerWires) Ground(ctx context.Context, partition int) (scheduler.Ground, error) {
	evidence, former, err := w.n.conn.Evidence(ctx, partition)
	if err != nil {
		return scheduler.Ground{}, err
	}
	end, err := w.n.conn.TasksEnd(ctx, partition)
	if err != nil {
		return scheduler.Ground{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	home, err := w.n.conn.Home(bounded, partition) // as the streams are now, not at the start
	if err == nil {
		err = w.n.checkHome(bounded, partition, home)
	}
	if err != nil {
		return scheduler.Ground{}, err
	}
	return scheduler.Ground{Stream: home.Identity, End: end, Evidence: evidence, Former: former}, nil
}

// checkHome refuses a partition whose cursor is of another task stream of this installation:
// the database is older than a change of their number, and what it has not read is there.
func (n *Node) checkHome(ctx context.Context, partition int, home natsbus.Home) error {
	if len(home.Others) == 0 {
		return nil
	}
	states, err := n.store.CursorsOf(ctx, []int{partition}, "")
	if err != nil {
		return err
	}
	for i := range states {
		tasks, _, _ := strings.Cut(states[i].Stream, "/")
		if slices.Contains(home.Others, tasks) {
			return fmt.Errorf("partition %d: the database is older than a change of the task streams: its cursor is of %s; stop the schedulers and let `duly task-streams %d` move what is unread",
				partition, tasks, n.cfg.TaskStreams)
		}
	}
	return nil
}

// watchEvidenceFor is when a watch of evidence is begun again: one whose bucket was made
// again hears nothing, as one does while nothing is committed.
const watchEvidenceFor = time.Minute

// watchEvidenceAgain is how long after a partition was taken over, or let go, a watch of the others begins: many move at
// once. What was recorded meanwhile is the first thing that it says.
const watchEvidenceAgain = time.Second

// Evidence implements scheduler.Wires. A watch that breaks is begun again, and so is one when other partitions are
// listened to: it hears of these alone.
func (w ownerWires) Evidence(ctx context.Context, heard func(core.Evidence)) error {
	for {
		all := w.listens()
		if len(all) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-w.moved:
				continue
			}
		}
		// A watch says nothing when it begins, and need not hear anything: one that lasts works.
		lasts := time.AfterFunc(evidenceWell, func() { w.n.report(condEvidence, nil) })
		bounded, cancel := context.WithTimeout(ctx, watchEvidenceFor)
		moved := w.endWhenMoved(bounded, cancel)
		err := w.n.conn.WatchEvidence(bounded, all, heard)
		over := bounded.Err() != nil
		cancel()
		<-moved
		lasts.Stop()
		if ctx.Err() != nil {
			return nil
		}
		if over {
			continue
		}
		w.n.report(condEvidence, err)
		if pause.For(ctx, time.Second) != nil {
			return nil
		}
	}
}

// endWhenMoved ends a watch soon after other partitions are listened to. What it returns is closed when it has ended.
func (w ownerWires) endWhenMoved(ctx context.Context, end func()) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			return
		case <-w.moved:
		}
		if pause.For(ctx, watchEvidenceAgain) == nil {
			end()
		}
	}()
	return ended
}

// evidenceWell is how long a watch of the evidence must last for the last failure to be over.
const evidenceWell = 5 * time.Second

// Listen implements scheduler.Wires.
func (w ownerWires) Listen(partition int, in *scheduler.Inbox) (func(), error) {
	sub, err := w.n.conn.ServeReplies(partition, in.Reply, in.Unserved)
	if err != nil {
		return nil, fmt.Errorf("listen to the replies of partition %d: %w", partition, err)
	}
	w.replies[partition].Store(in)
	w.listened()
	return func() {
		w.replies[partition].CompareAndSwap(in, nil)
		w.listened()
		sub.Stop()
	}, nil
}

// Read implements scheduler.Wires. Controls begin first: they go before new work.
func (w ownerWires) Read(ctx context.Context, partition int, from scheduler.Adopted, in *scheduler.Inbox, lost func(error)) (func(), error) {
	ofTasks, ofControl, both := strings.Cut(from.Stream, "/") // as Conn.Identity joins them
	if !both {
		return nil, fmt.Errorf("read partition %d: streams %q, want tasks/control", partition, from.Stream)
	}
	control, err := w.n.conn.ReadControl(ctx, partition, from.Epoch, from.ControlCursor, natsbus.ReadConfig{Stream: ofControl, Stored: from.ControlStored},
		func(m *natsbus.TaskMessage) { w.controls(ctx, partition, m, in) }, func(err error) { lost(rewound(err, scheduler.ErrControlRewound)) })
	if err != nil {
		return nil, fmt.Errorf("read the controls of partition %d: %w", partition, rewound(err, scheduler.ErrControlRewound))
	}
	tasks, err := w.n.conn.ReadTasks(ctx, partition, from.Epoch, from.Cursor, natsbus.ReadConfig{Stream: ofTasks, Stored: from.CursorStored},
		func(m *natsbus.TaskMessage) { w.tasks(ctx, partition, m, in) }, func(err error) { lost(rewound(err, scheduler.ErrRewound)) })
	if err != nil {
		control.Stop()
		return nil, fmt.Errorf("read the tasks of partition %d: %w", partition, rewound(err, scheduler.ErrRewound))
	}
	return func() {
		control.Stop()
		tasks.Stop()
	}, nil
}

// rewound says in the scheduler's words that a stream ends before the cursor.
func rewound(err, as error) error {
	if errors.Is(err, natsbus.ErrRewound) {
		return fmt.Errorf("%w: %w", as, err)
	}
	return err
}

// doors decodes what the task stream holds, also what the plain door let in
// unseen.
func (n *Node) doors() wire.TaskDecoder {
	return wire.TaskDecoder{Partitions: n.cfg.Partitions, ReplyPrefixes: n.cfg.ReplyTo, Names: n.conn.Names()}
}

func (w ownerWires) tasks(ctx context.Context, partition int, m *natsbus.TaskMessage, in *scheduler.Inbox) {
	mail := scheduler.TaskMail{Partition: partition, Pos: m.Seq, Stored: m.Time, Ack: w.ack(m)}
	stored := wire.StoredAt(m.Header, m.Time)
	d, err := w.n.doors().Decode(m.Subject, m.Header, m.Data, stored)
	if err != nil {
		if !w.bury(ctx, w.n.conn.StreamTasks(partition), m, err) {
			return
		}
	}
	for i := range d.Submissions {
		clamp(&d.Submissions[i], stored)
	}
	mail.Submissions, mail.Refused = d.Submissions, d.Refused
	in.Tasks(mail)
}

// clamp keeps the time of a submission to the stream's: the node that took it in may have a wrong clock, and all that
// a task's deadlines are counted from is this time. A submission is stored within seconds of its coming.
func clamp(s *core.Submission, stored core.Instant) {
	if s.At > stored || stored.Sub(s.At) > submissionAge {
		s.At = stored
	}
}

// submissionAge is longer than a submission may wait for its pack to be stored.
const submissionAge = 10 * time.Second

func (w ownerWires) controls(ctx context.Context, partition int, m *natsbus.TaskMessage, in *scheduler.Inbox) {
	mail := scheduler.ControlMail{Partition: partition, Pos: m.Seq, Stored: m.Time, Ack: w.ack(m)}
	c, err := wire.DecodeControl(m.Data)
	if err != nil {
		if !w.bury(ctx, w.n.conn.StreamControl(partition), m, err) {
			return
		}
		c = core.Control{}
	}
	mail.Control = c
	in.Control(mail)
}

// ack acknowledges one message. A lost acknowledgement brings it again, and the
// reader acknowledges that by itself.
func (w ownerWires) ack(m *natsbus.TaskMessage) func() {
	return func() {
		if err := m.Ack(); err != nil {
			w.n.log.Debug("acknowledgement not sent", "seq", m.Seq, "error", err)
		}
	}
}

// bury stores what cannot be decoded as a dead letter; only then may its
// message be acknowledged.
func (w ownerWires) bury(ctx context.Context, stream string, m *natsbus.TaskMessage, cause error) bool {
	err := w.n.persist(ctx, "dead letter", func() error {
		return w.n.conn.Dead(ctx, stream, m.Subject, m.Data, cause.Error(), m.Header)
	})
	return err == nil
}
