package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// The duty that looks after limits: it reads them, claims grants for the shards, and tells the shards.

// LimitsChanged makes the scheduler read the limits soon. It is safe for concurrent use.
func (s *Scheduler) LimitsChanged() { s.limits.kick.set() }

// limitDuty runs LimitTurn. While the state store cannot be reached no grant is renewed, and the shards'
// grants run out.
func (s *Scheduler) limitDuty() duty {
	return duty{trouble: TroubleLimits, run: s.LimitTurn, kick: s.limits.kick, every: s.LimitPause, least: limitSoon / 4}
}

// LimitTurn reads the limits and claims grants for the committers. It runs after LimitPause, or sooner when a
// shard wants more. It must not run concurrently with itself.
func (s *Scheduler) LimitTurn(ctx context.Context) error {
	stored, err := s.cfg.Limits.Store.Limits(ctx)
	if err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if s.limits.learn(stored) {
		for _, c := range s.committers {
			c.in.Limits(stored)
		}
	}
	now := s.cfg.Now()
	s.limits.mu.Lock()
	counts := slices.Clone(s.limits.shards)
	if s.limits.countedAt.Elapsed(now, recountEvery) {
		clear(s.limits.counted)
		s.limits.countedAt = now
	}
	s.limits.mu.Unlock()
	return errors.Join(s.claimAll(ctx, s.limits.due(now)), s.tellCounts(ctx, counts))
}

// tellCounts tells the state store which partitions' commands each shard counts, and tells shards that left
// commands behind who counts those now.
func (s *Scheduler) tellCounts(ctx context.Context, counts []shardCounts) error {
	left := false
	for shard := range counts {
		left = left || counts[shard].left
		all := counts[shard].here
		if len(all) == 0 || !s.limits.hasClaimed(shard) {
			continue
		}
		if err := s.cfg.Limits.Store.CountPlaces(ctx, s.holder(shard), all); err != nil {
			return fmt.Errorf("count the places of %d partitions: %w", len(all), err)
		}
		s.limits.mu.Lock()
		for _, c := range all {
			s.limits.counted[c.Partition] = c.Epoch
		}
		s.limits.mu.Unlock()
	}
	if !left {
		return nil
	}
	all, err := s.cfg.Limits.Store.Counted(ctx)
	if err != nil {
		return fmt.Errorf("who counts the places of partitions: %w", err)
	}
	for shard := range counts {
		if counts[shard].left {
			s.committers[shard].in.counted(all)
		}
	}
	return nil
}

// holder is the name under which a shard's grants are stored. It is of this life of the node only.
func (s *Scheduler) holder(shard int) string {
	return fmt.Sprintf("%s/%s/%d", s.cfg.Node, s.cfg.Limits.Life, shard)
}

// claimAll claims the given grants, agent by agent. An error for one agent does not keep the others' grants
// from being renewed.
func (s *Scheduler) claimAll(ctx context.Context, all []grantKey) (failed error) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].agent == all[0].agent {
			n++
		}
		if err := s.claimGrants(ctx, all[:n]); err != nil {
			failed = errors.Join(failed, fmt.Errorf("limit of agent %s: %w", all[0].agent, err))
		}
		all = all[n:]
	}
	return failed
}

// claimGrants claims grants of one agent's limit and its keys, and sends them to the shards.
func (s *Scheduler) claimGrants(ctx context.Context, all []grantKey) error {
	now := s.cfg.Now()
	mine, terms := make([]core.Grant, len(all)), make([]int64, len(all))
	s.limits.mu.Lock()
	for i, of := range all {
		h := s.limits.of(of)
		margin := grantMargin
		if of.keyed {
			margin = keyMargin
		}
		mine[i] = core.Grant{Keyed: of.keyed, Key: of.key, Holder: s.holder(of.shard), Wanted: h.use.wanted, Until: now.Add(h.use.longest + margin)}
		mine[i].Places, mine[i].RateMilli = h.floor()
		terms[i] = s.limits.shards[of.shard].term
	}
	s.limits.mu.Unlock()
	got, err := s.cfg.Limits.Store.ClaimGrants(ctx, all[0].agent, now, mine)
	if err != nil {
		s.limits.mu.Lock()
		defer s.limits.mu.Unlock()
		for _, of := range all {
			s.limits.of(of).unsure = true
		}
		return err
	}
	mails := make([]GrantMail, len(got))
	s.limits.mu.Lock()
	for i := range got {
		h := s.limits.of(all[i]) // makes it anew if the shard has meanwhile reported that it needs none
		s.limits.seq++
		h.sent, h.unsure = got[i].Grant, false
		if terms[i] == s.limits.shards[all[i].shard].term { // else the shard ignores it
			h.seq, h.claimed = s.limits.seq, now
		}
		mails[i] = GrantMail{got[i], s.limits.seq, terms[i]}
	}
	s.limits.mu.Unlock()
	for i, m := range mails {
		s.committers[all[i].shard].in.grant(all[i].limitOf, m)
	}
	return nil
}

// LimitPause returns how long after a turn the next one is, if nothing asks for one sooner.
func (s *Scheduler) LimitPause() time.Duration {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	wait := PausesEvery
	for i := range s.limits.shards {
		if s.limits.shards[i].left {
			wait = limitRenew
		}
	}
	for key, h := range s.limits.grants {
		l, _ := s.limits.bounds(key.limitOf)
		switch {
		case h.wants(&l):
			return limitSoon
		case h.unsure, h.use.wanted > 0, h.sent.Places > 0, h.sent.RateMilli > 0:
			wait = limitRenew
		}
	}
	return wait
}
