package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/scheduler"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// StreamsChange is what ChangeTaskStreams needs to know.
type StreamsChange struct {
	Links     config.Links
	Namespace string
	To        int                              // how many task streams there are to be
	Wait      time.Duration                    // for the leases of schedulers that have ended
	Keep      time.Duration                    // what streams that are no longer used have taken since stays; 0: the default
	Tell      func(format string, args ...any) // hears what is done

	moved func(partition int) // hears of each partition that is done; tests die there. nil: none does
}

// changeOwner is whose a partition is while its cursors move.
const changeOwner = "task-streams"

// liveEvery is between two looks at the leases.
const liveEvery = 250 * time.Millisecond

// ChangeTaskStreams changes how many task streams share the partitions. No scheduler may
// run; submissions are taken meanwhile, or their submitters told to come again. What is cut
// off is finished by another call. Errors: of the configuration, database and streams; live
// schedulers, by name.
func ChangeTaskStreams(ctx context.Context, s StreamsChange) (err error) {
	store, err := dialects.Open(ctx, s.Links.DatabaseURL, schema.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.CheckVersion(ctx); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	installation, err := store.Installation(ctx, s.Namespace)
	if err != nil {
		return err
	}
	conn, err := natsbus.Dial(ctx, s.Links.NATS("duly-task-streams", s.Namespace, slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := s.awaitNone(ctx, conn); err != nil {
		return err
	}
	states, err := store.Cursors(ctx)
	if err != nil {
		return err
	}
	change, err := conn.BeginChange(ctx, installation, s.To, len(states))
	if err != nil {
		return err
	}
	if err := s.awaitNone(ctx, conn); err != nil { // one that came before the mark; none comes after it
		return fmt.Errorf("%w; the change is begun: call this again when they have ended", err)
	}
	if err := change.Prepare(ctx); err != nil {
		return err
	}
	if err := s.moveAll(ctx, store, conn, change); err != nil {
		return err
	}
	left, err := change.Finish(ctx, cmp.Or(s.Keep, defaultMaxAge))
	if err != nil {
		return err
	}
	if len(left) > 0 {
		s.Tell("%s", say.Of("streams.kept", "streams", strings.Join(left, ", ")))
	}
	s.Tell("%s", say.Of("streams.done", "n", s.To, "flag", natsbus.FlagTaskStreams))
	return nil
}

// awaitNone waits until no scheduler has a lease.
func (s *StreamsChange) awaitNone(ctx context.Context, conn *natsbus.Conn) error {
	for by, told := time.Now().Add(s.Wait), false; ; told = true {
		live, err := conn.LiveNodes(ctx)
		if err != nil || len(live) == 0 {
			return err
		}
		if time.Now().After(by) {
			return fmt.Errorf("schedulers run: %s: stop them, so that what they have not read can be moved", strings.Join(live, ", "))
		}
		if !told {
			s.Tell("%s", say.Of("streams.waiting", "time", s.Wait, "nodes", strings.Join(live, ", ")))
		}
		if err := pause.For(ctx, liveEvery); err != nil {
			return err
		}
	}
}

// moveAll moves every partition, its messages first and its row then.
func (s *StreamsChange) moveAll(ctx context.Context, store schema.Store, conn *natsbus.Conn, change *natsbus.Change) error {
	states, err := store.Cursors(ctx)
	if err != nil {
		return err
	}
	ids := scheduler.NewCommitIDs(random)
	for i := range states {
		st := &states[i]
		moved, err := change.Move(ctx, st)
		if err != nil {
			return err
		}
		if moved.Claim {
			if err := s.claim(ctx, store, conn, ids.Next(), st.Partition, &moved); err != nil {
				return fmt.Errorf("partition %d: %w", st.Partition, err)
			}
		}
		if moved.Messages > 0 {
			s.Tell("%s", say.Of("streams.moved", "partition", st.Partition, "n", moved.Messages))
		}
		if s.moved != nil {
			s.moved(st.Partition)
		}
	}
	return nil
}

// claim writes into a partition's row where its cursors are now, as a takeover: its former
// owner commits nothing any more.
func (s *StreamsChange) claim(ctx context.Context, store schema.Store, conn *natsbus.Conn, commit int64, partition int, moved *natsbus.MovedPartition) error {
	evidence, former, err := conn.Evidence(ctx, partition)
	if err != nil {
		return err
	}
	st, err := store.TakeOver(ctx, partition, core.Claim{
		Owner: changeOwner, Commit: commit, At: core.InstantOf(time.Now()), Stream: moved.Stream, Begin: moved.Begin, ControlBegin: moved.ControlBegin,
		Evidence: evidence, Former: former,
	})
	if err != nil {
		return err
	}
	if st.Found.WentBack {
		s.Tell("%s", say.Of("streams.back", "partition", partition))
	}
	return store.Release(ctx, partition, st.Epoch)
}
