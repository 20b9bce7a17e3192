package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/say"
)

// Wishes is where what operators want of partitions is kept, where all schedulers see it.
type Wishes interface {
	// Wish returns what is wanted of a partition; zero but for its number: nothing.
	Wish(ctx context.Context, partition int) (core.Wish, error)
	// PutWish stores it; of neither node nor avoid, it forgets it.
	PutWish(ctx context.Context, w core.Wish) error
}

// Partitioning is Partitions over the state store and the places that all schedulers see. All fields but Chains are required. It is
// safe for concurrent use.
type Partitioning struct {
	// Chains returns how far the chains of commits are, by partition; one without a chain is missing. nil: none is kept.
	Chains func(ctx context.Context) (map[int]ChainEnd, error)
	Flow   FlowReader
	Wishes Wishes
	Desk   *Desk
	// Lags returns how many messages of each partition's task stream are not committed yet; a partition without a reader is
	// missing.
	Lags func(ctx context.Context) (map[int]uint64, error)
	// Live returns the live nodes; false: they are not known yet.
	Live func() (nodes []string, known bool)
	Now  func() time.Time
}

// Partitions implements Partitions.
func (s *Partitioning) Partitions(ctx context.Context) ([]Partition, error) {
	states, err := s.Flow.Cursors(ctx)
	if err != nil {
		return nil, err
	}
	lags, err := s.Lags(ctx)
	if err != nil {
		return nil, err
	}
	inFlight, err := s.Flow.InFlight(ctx)
	if err != nil {
		return nil, err
	}
	var chains map[int]ChainEnd
	if s.Chains != nil {
		if chains, err = s.Chains(ctx); err != nil {
			return nil, err
		}
	}
	live, known := s.Live()
	all := make([]Partition, len(states))
	for i := range states {
		st := &states[i]
		lag, read := lags[st.Partition]
		w, err := s.Wishes.Wish(ctx, st.Partition)
		if err != nil {
			return nil, err
		}
		all[i] = Partition{
			Partition: st.Partition, Owner: st.Owner, Epoch: st.Epoch, Lag: lag, LagUnknown: !read, Pinned: w.Node, InFlight: inFlight[st.Partition], Chain: chains[st.Partition],
			OwnerGone:  known && st.Owner != "" && !slices.Contains(live, st.Owner),
			PinIgnored: known && w.Node != "" && !slices.Contains(live, w.Node),
		}
		if w.Avoids(w.Avoid, core.InstantOf(s.Now())) {
			all[i].SteppedDown, all[i].SteppedDownUntil = w.Avoid, w.Until.Time()
		}
		all[i].MayUnpin, all[i].MayStepDown = noUnpin(st, w) == nil, s.noStepDown(st, w) == nil
	}
	slices.SortFunc(all, func(a, b Partition) int { return a.Partition - b.Partition })
	return all, nil
}

// Pin implements Partitions.
func (s *Partitioning) Pin(ctx context.Context, by Actor, partition int, node, reason string, anyway bool) error {
	return s.change(ctx, by, "partition.pin", partition, reason, func(_ *core.PartitionState, _ core.Wish) (core.Wish, *Refusal) {
		if err := core.CheckName("node", node); err != nil {
			return core.Wish{}, &Refusal{Code: 400, Field: "node", Detail: err.Error()}
		}
		var r *Refusal
		if live, known := s.Live(); known && !anyway {
			r = unheard("node", node, live, say.Of("refuse.no-node", "node", core.QuoteShort(node)))
		}
		return core.Wish{Partition: partition, Node: node}, r
	})
}

// Unpin implements Partitions.
func (s *Partitioning) Unpin(ctx context.Context, by Actor, partition int, reason string) error {
	return s.change(ctx, by, "partition.unpin", partition, reason, func(st *core.PartitionState, was core.Wish) (core.Wish, *Refusal) {
		return core.Wish{Partition: partition}, noUnpin(st, was)
	})
}

func noUnpin(st *core.PartitionState, was core.Wish) *Refusal {
	if was.Node == "" && was.Avoid == "" {
		return &Refusal{Code: 409, Detail: say.Of("refuse.not-pinned", "partition", st.Partition)}
	}
	return nil
}

// StepDown implements Partitions.
func (s *Partitioning) StepDown(ctx context.Context, by Actor, partition int, reason string) error {
	return s.change(ctx, by, "partition.step_down", partition, reason, func(st *core.PartitionState, was core.Wish) (core.Wish, *Refusal) {
		bad := s.noStepDown(st, was)
		was.Avoid, was.Until = st.Owner, core.InstantOf(s.Now().Add(StepDownFor))
		return was, bad
	})
}

// noStepDown says why the owner of a partition is not asked to hand it over; nil: it is.
func (s *Partitioning) noStepDown(st *core.PartitionState, was core.Wish) *Refusal {
	live, known := s.Live()
	switch {
	case !known:
		return &Refusal{Code: 503, RetryMS: 1000, Detail: say.Of("refuse.nodes-unknown")}
	case st.Owner == "":
		return &Refusal{Code: 409, Detail: say.Of("refuse.no-owner", "partition", st.Partition)}
	case !slices.ContainsFunc(live, func(n string) bool { return n != st.Owner }):
		return &Refusal{Code: 409, Detail: say.Of("refuse.no-other-owner", "owner", st.Owner, "partition", st.Partition)}
	case was.Node == st.Owner:
		return &Refusal{Code: 409, Detail: say.Of("refuse.pinned", "partition", st.Partition, "owner", st.Owner)}
	}
	return nil
}

// change changes what is wanted of a partition, as decide says.
func (s *Partitioning) change(ctx context.Context, by Actor, action string, partition int, reason string, decide func(*core.PartitionState, core.Wish) (core.Wish, *Refusal)) error {
	change := Act{By: by, Action: action, Target: fmt.Sprintf("partition/%d", partition), Reason: reason, Away: true}
	states, err := s.Flow.Cursors(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(states, func(st core.PartitionState) bool { return st.Partition == partition })
	if i < 0 {
		return s.Desk.Note(ctx, &change, &Refusal{Code: 404, Field: "partition", Detail: say.Of("refuse.partition-unknown", "partition", partition, "n", len(states))})
	}
	if r := checkReason(reason); r != nil {
		return s.Desk.Note(ctx, &change, r)
	}
	was, err := s.Wishes.Wish(ctx, partition)
	if err != nil {
		return err
	}
	is, r := decide(&states[i], was)
	if change.Before = wishDocument(was); r != nil {
		return s.Desk.Note(ctx, &change, r)
	}
	change.After = wishDocument(is)
	return s.Desk.Change(ctx, &change, func(ctx context.Context) error { return s.Wishes.PutWish(ctx, is) })
}

// WishBecame says what became of a change of what is wanted of a partition, from what is wanted now.
func WishBecame(e *AuditEntry, now core.Wish) string {
	switch is := document(wishDocument(now)); {
	case quickjson.Same(is, e.After):
		return WasMade
	case quickjson.Same(is, e.Before):
		return NotMade
	}
	return NotKnown // another has changed it since
}

// wishDocument is what is wanted of a partition as the audit trail has it.
func wishDocument(w core.Wish) any {
	d := struct {
		Node  string    `json:"node,omitempty"`
		Avoid string    `json:"stepped_down,omitempty"`
		Until time.Time `json:"until,omitzero"`
	}{Node: w.Node, Avoid: w.Avoid}
	if w.Until != 0 {
		d.Until = w.Until.Time()
	}
	return d
}
