package sim_test

import (
	"context"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/supervisor"
)

// stageSupervisor is one supervisor process.
type stageSupervisor struct {
	s    *stage
	name string
	up   bool
	is   *supervisor.Supervisor
}

func (v *stageSupervisor) begin() {
	v.up = true
	v.is = supervisor.New(supervisor.Config{Slack: time.Millisecond, Actor: v.name}, v.s.store, v, v)
}

// tick is one look of a supervisor: tick, or tick s2; ahead=5s: by a fast clock.
func (s *stage) tick(name string, a args) {
	if name == "" {
		name = "super"
	}
	v := s.supers[name]
	if v == nil {
		v = &stageSupervisor{s: s, name: name}
		s.supers[name] = v
		v.begin()
	}
	if !v.up {
		s.t.Fatalf("%s is not running", name)
	}
	s.now = s.now.Add(2 * time.Millisecond) // its slack: what is due at this very instant is overdue
	rep, err := v.is.Tick(context.Background(), s.now.Add(s.duration(a["ahead"])))
	switch {
	case err != nil:
		s.say(name, "fails:", "%v", err)
	case !rep.Held:
		s.say(name, "waits:", "%s leads", s.leader.holder)
	case rep.Asked == 0:
		s.say(name, "finds", "nothing overdue")
	}
}

// Ask implements supervisor.Bus.
func (v *stageSupervisor) Ask(_ context.Context, partition int, c core.Control) (uint64, error) {
	m := stageMessage{partition: partition, control: c}
	pos := v.s.append(&v.s.controls, m)
	v.s.say(v.name, "asks", "controls %d: %s", pos, &m)
	return pos, nil
}

// stageLease is the leadership among supervisors.
type stageLease struct {
	holder string
	until  core.Instant
}

// Renew implements supervisor.Lease.
func (v *stageSupervisor) Renew(context.Context) (bool, error) {
	l := &v.s.leader
	if l.holder != v.name && v.s.now < l.until {
		return false, nil
	}
	l.holder, l.until = v.name, v.s.now.Add(6*time.Second)
	return true, nil
}

// Release implements supervisor.Lease.
func (v *stageSupervisor) Release(context.Context) error {
	if v.s.leader.holder == v.name {
		v.s.leader = stageLease{}
	}
	return nil
}

// stageAlerts reads the event stream for the operator.
type stageAlerts struct {
	s       *stage
	alerter *supervisor.Alerter
	tasks   map[string]bool
}

func newStageAlerts(s *stage) *stageAlerts {
	a := &stageAlerts{s: s, tasks: map[string]bool{}}
	a.alerter = supervisor.NewAlerter(supervisor.AlertConfig{}, a)
	return a
}

func (a *stageAlerts) take(e core.Ending) {
	a.alerter.Take(a.s.now, e, func(err error) {
		if err != nil {
			a.s.t.Fatal(err)
		}
	})
}

// Alert implements supervisor.Sink.
func (a *stageAlerts) Alert(al supervisor.Alert) error {
	a.tasks[al.Task] = true
	a.s.say("operator", "is alerted", "%s, step %s: %s", al.Task, al.Step, al.Error)
	return nil
}
