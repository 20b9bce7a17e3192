package operate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// Pausing is PauseControl over the state store. All fields are required. It is safe for concurrent use.
type Pausing struct {
	Store    PauseStore
	Desk     *Desk
	Flow     FlowReader
	Announce func() error // tells every scheduler that the pauses have changed; without it they read them seconds later
	Now      func() time.Time
}

// SetPause implements PauseControl.
func (s *Pausing) SetPause(ctx context.Context, by Actor, p Pause) (Pause, error) {
	now := s.Now()
	p.ID, p.At, p.By = pauseID(p.Key), now.UTC(), by.Name
	set := Act{By: by, Action: "pause.set", Target: "pause/" + p.ID, Reason: p.Reason, Key: p.Key, After: p, Same: func(again *AuditEntry) bool {
		was := pauseOf(again)
		return was.Type == p.Type && was.Step == p.Step && was.Agent == p.Agent && was.Label == p.Label
	}}
	if r := CheckPause(&p, now); r != nil {
		return p, s.Desk.Note(ctx, &set, r)
	}
	switch r, err := unknown(ctx, p.EvenIfUnknown, s.Flow.Plans, p.Type, p.Step, p.Agent); {
	case err != nil:
		return p, err
	case r != nil:
		return p, s.Desk.Note(ctx, &set, r)
	}
	all, err := s.Store.Pauses(ctx)
	if err != nil {
		return p, fmt.Errorf("pauses: %w", err)
	}
	if len(all) >= PausesMax { // those that are over make room
		if all, err = s.dropOver(ctx, all, now); err != nil {
			return p, err
		}
	}
	if n := len(all); n >= PausesMax && !slices.ContainsFunc(all, func(is Pause) bool { return is.ID == p.ID }) {
		return p, s.Desk.Note(ctx, &set, &Refusal{Code: 409, Detail: say.Of("refuse.pauses-full", "n", n, "limit", PausesMax)})
	}
	err = s.Desk.Change(ctx, &set, func(ctx context.Context) error {
		if set.Again != nil {
			p = pauseOf(set.Again)
		}
		if r := CheckPause(&p, now); r != nil { // the time of the first request may be over
			return r
		}
		return s.Store.PutPause(ctx, p)
	})
	if err != nil {
		return p, fmt.Errorf("pause %s: %w", p.ID, err)
	}
	if set.Again != nil {
		p = pauseOf(set.Again)
	}
	_ = s.Announce() // what is stored counts whether or not they hear of it now: they read it from time to time
	return p, nil
}

// pauseID is the id of a new pause: the same for the same key.
func pauseID(key string) string {
	if key == "" {
		return strings.ToLower(rand.Text())
	}
	hash := sha256.Sum256([]byte(key))
	return hex.EncodeToString(hash[:])[:26]
}

// pauseOf is the pause that an entry of the audit trail is about.
func pauseOf(e *AuditEntry) (p Pause) {
	_ = json.Unmarshal(e.After, &p) // it was written as one
	return p
}

// LiftPause implements PauseControl.
func (s *Pausing) LiftPause(ctx context.Context, by Actor, id, reason string) error {
	all, err := s.Store.Pauses(ctx)
	if err != nil {
		return fmt.Errorf("pauses: %w", err)
	}
	i := slices.IndexFunc(all, func(p Pause) bool { return p.ID == id })
	lift := Act{By: by, Action: "pause.lift", Target: "pause/" + core.ShortText(id, core.WordsBytesMax), Reason: reason}
	if i < 0 {
		return s.Desk.Note(ctx, &lift, &Refusal{Code: 404, Field: "id", Detail: say.Of("refuse.no-pause", "id", core.QuoteShort(id))})
	}
	lift.Before = all[i]
	if r := checkReason(reason); r != nil {
		return s.Desk.Note(ctx, &lift, r)
	}
	if err := s.Desk.Change(ctx, &lift, func(ctx context.Context) error { return s.Store.DeletePause(ctx, id) }); err != nil {
		return fmt.Errorf("pause %s: %w", id, err)
	}
	_ = s.Announce() // as SetPause
	return nil
}

// dropOver forgets the pauses that are over, and returns the others.
func (s *Pausing) dropOver(ctx context.Context, all []Pause, now time.Time) (kept []Pause, err error) {
	for _, p := range all {
		if p.Until.IsZero() || now.Before(p.Until) {
			kept = append(kept, p)
			continue
		}
		if err := s.Store.DeletePause(ctx, p.ID); err != nil && !errors.Is(err, core.ErrNotFound) {
			return nil, fmt.Errorf("pause %s, which is over: %w", p.ID, err)
		}
	}
	return kept, nil
}

// Pauses implements PauseControl.
func (s *Pausing) Pauses(ctx context.Context) ([]PauseView, error) {
	all, err := s.Store.Pauses(ctx)
	if err != nil {
		return nil, fmt.Errorf("pauses: %w", err)
	}
	plans, err := s.Flow.Plans(ctx)
	if _, some := errors.AsType[core.UnreadablePlans](err); err != nil && !some {
		return nil, fmt.Errorf("plans: %w", err)
	}
	now := s.Now()
	views := []PauseView{}
	for _, p := range all {
		if !p.Until.IsZero() && !now.Before(p.Until) {
			continue
		}
		v := PauseView{Pause: p}
		if f, some := filterOf(CorePause(p), plans); some {
			parked, err := s.Flow.Parked(ctx, f)
			if err != nil {
				return nil, fmt.Errorf("tasks behind pause %s: %w", p.ID, err)
			}
			v.Waiting = parked.Tasks
			if parked.First != 0 {
				v.FirstDeadline = parked.First.Time()
			}
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b PauseView) int { return b.At.Compare(a.At) })
	return views, nil
}

// filterOf selects what a pause holds; false: no stored plan has a step that it covers.
func filterOf(p core.Pause, plans []core.Plan) (f ParkedFilter, some bool) {
	f = ParkedFilter{Type: p.Type, Label: p.Label}
	for k := range plans {
		for i := range plans[k].Steps {
			if p.Covers(&plans[k], i) && !slices.Contains(f.Agents, plans[k].Steps[i].Agent) {
				f.Agents = append(f.Agents, plans[k].Steps[i].Agent)
			}
		}
	}
	return f, len(f.Agents) > 0
}

// CorePause is a pause as a scheduler knows it. It must have passed CheckPause: a label that is none is left out, and with
// it the pause holds more.
func CorePause(p Pause) core.Pause {
	c := core.Pause{Type: p.Type, Step: p.Step, Agent: p.Agent}
	if p.Label != "" {
		key, value, _ := strings.Cut(p.Label, "=")
		c.Label = core.Label{Key: key, Value: value}
	}
	if !p.Until.IsZero() {
		c.Until = core.InstantOf(p.Until)
	}
	return c
}

// CheckPause refuses a pause that cannot be; nil: it can.
func CheckPause(p *Pause, now time.Time) *Refusal {
	bad := func(field string, err error) *Refusal { return &Refusal{Code: 400, Field: field, Detail: err.Error()} }
	for _, n := range []struct {
		field, value string
		check        func(string) error
	}{
		{"type", p.Type, func(v string) error { return core.CheckName("type", v) }},
		{"step", p.Step, func(v string) error { return core.CheckName("step", v) }},
		{"agent", p.Agent, core.CheckAgent},
		{"label", p.Label, func(v string) error { _, err := core.ParseLabel(v); return err }},
	} {
		if n.value == "" {
			continue
		}
		if err := n.check(n.value); err != nil {
			return bad(n.field, err)
		}
	}
	switch {
	case p.Step != "" && p.Type == "":
		return &Refusal{Code: 400, Field: "step", Detail: say.Of("refuse.step-typeless", "step", p.Step)}
	case !p.Until.IsZero() && !p.Until.After(now):
		return &Refusal{Code: 400, Field: "until", Detail: say.Of("refuse.until-passed", "until", p.Until.UTC().Format(time.RFC3339), "now", now.UTC().Format(time.RFC3339))}
	case p.Until.After(now.Add(core.DurationMax)):
		return &Refusal{Code: 400, Field: "until", Detail: say.Of("refuse.until-far", "until", p.Until.UTC().Format(time.RFC3339), "limit", core.DurationMax)}
	}
	return checkReason(p.Reason)
}

func checkReason(reason string) *Refusal {
	if strings.TrimSpace(reason) == "" {
		return wrong("reason", "reason is empty, want why in a few words")
	}
	return CheckReason(reason)
}

// setTries is how often something that changes meanwhile is set again.
const setTries = 5

// overwrite stores what is wanted, over whatever the stored one has become meanwhile: put stores it if that is still the one
// that next was made from, and find reads it again. what is it and wanted what was wanted, for a person:
// "the limit of agent pay", "set".
func overwrite[T any](ctx context.Context, was T, next func(T) T, put func(context.Context, T) (bool, error), find func() (T, *Refusal, error), what, wanted string) (T, error) {
	for range setTries {
		is := next(was)
		stored, err := put(ctx, is)
		if err != nil || stored {
			return is, err
		}
		var r *Refusal
		if was, r, err = find(); err != nil {
			return is, err
		}
		if r != nil { // another operator was first
			return is, r
		}
	}
	return was, &Refusal{Code: 409, Detail: say.Of("refuse.changed", "what", what, "n", setTries, "wanted", wanted)}
}
