package sim_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/scheduler"
)

// The front door, the plans and the streams.

// stageStream is a stream of messages; the position of one is its index + 1.
type stageStream struct {
	name, identity string
	messages       []stageMessage
}

type stageMessage struct {
	partition int
	subs      []core.Submission
	control   core.Control
}

// String is what the message holds.
func (m *stageMessage) String() string {
	c := &m.control
	switch {
	case len(m.subs) > 8:
		return fmt.Sprintf("%d submissions", len(m.subs))
	case len(m.subs) > 0:
		ids := make([]string, len(m.subs))
		for i := range m.subs {
			ids[i] = m.subs[i].ID
		}
		return "submit " + strings.Join(ids, ", ")
	case c.Kind == core.EventOverdue:
		return fmt.Sprintf("overdue? %d of them, by %s", len(c.Numbers), c.Actor)
	}
	if n := len(c.Numbers); n > 0 {
		return fmt.Sprintf("%s %d tasks, by %s", eventWords[c.Kind], n, c.Actor)
	}
	return fmt.Sprintf("%s %s, by %s", eventWords[c.Kind], c.ID, c.Actor)
}

var eventWords = map[core.EventKind]string{
	core.EventCancel: "cancel", core.EventUndo: "undo", core.EventResubmit: "resubmit", core.EventResolve: "resolve", core.EventExtend: "extend",
	core.EventAccept: "accept", core.EventEdit: "edit", core.EventSignal: "signal",
}

// end is the position of a partition's last message.
func (s *stageStream) end(partition int) uint64 {
	for i := len(s.messages) - 1; i >= 0; i-- {
		if s.messages[i].partition == partition {
			return uint64(i + 1)
		}
	}
	return 0
}

func (s *stage) append(to *stageStream, m stageMessage) uint64 {
	to.messages = append(to.messages, m)
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		if n.up && n.feeds[m.partition] != nil {
			s.after(0, func() {
				if n.up {
					n.pump(m.partition)
				}
			})
		}
	}
	return uint64(len(to.messages))
}

// loseStreams replaces both streams by empty ones, of another identity.
func (s *stage) loseStreams(identity string, _ args) {
	s.tasks = stageStream{name: "tasks", identity: identity}
	s.controls = stageStream{name: "controls"}
	s.say("network", "loses", "both streams; there are new ones, %s", identity)
}

// loseEvidence forgets what owners recorded outside the store.
func (s *stage) loseEvidence(string, args) {
	clear(s.evidence)
	clear(s.former)
	s.say("network", "loses", "all evidence")
}

// switchEvents takes the event stream down or up.
func (s *stage) switchEvents(way string, _ args) {
	s.eventsUp = way == "up"
	s.say("events", "are", "%s", way)
}

// hear brings a reply to every node that listens for the partition.
func (s *stage) hear(r core.Reply) {
	heard := false
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if n := s.nodes[name]; n.up && n.feeds[r.Partition] != nil {
			heard = true
			n.mail.Replies = append(n.mail.Replies, scheduler.ReplyMail{At: n.clock(), Reply: r})
			n.wake()
		}
	}
	if !heard {
		s.say("network", "drops", "the answer #%d: no node listens", r.Seq)
	}
}

func (s *stage) codeText(r core.Reply) string { return fmt.Sprintf("%d %s", r.Code, r.Error) }

// Plans.

// beginPlan begins a plan, which its steps follow; put stores it.
func (s *stage) beginPlan(name string, a args) {
	s.plan = core.Plan{
		Name: name, Version: int64(s.number(a.or("version", "1"))),
		CompleteBy: s.duration(a["complete-by"]), Grace: s.duration(a["grace"]), UndoReserve: s.duration(a["reserve"]), Result: a["result"],
	}
}

// addStep adds a step to the plan: after the one before it, unless after= names others, joined by commas; none at all where
// it is empty.
func (s *stage) addStep(name string, a args) {
	_, check := a["check"]
	var after []int
	if names, ok := a["after"]; ok {
		for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
			after = append(after, s.plan.StepIndex(name))
		}
	} else if n := len(s.plan.Steps); n > 0 {
		after = []int{n - 1}
	}
	step := core.Step{
		After: after,
		Name:  name, Agent: a.or("agent", name), Undoable: !check, OnExhausted: core.Policy(a["policy"]),
		CompleteBy: s.duration(a["complete-by"]), UndoCompleteBy: s.duration(a["undo-complete-by"]),
		Backoff: s.duration(a["backoff"]), BackoffCap: s.duration(a["backoff-cap"]), Pause: s.duration(a["pause"]),
		AttemptsMax: s.number(a["attempts"]), UndoAttemptsMax: s.number(a["undo-attempts"]),
	}
	s.expressions(&step, a)
	s.plan.Steps = append(s.plan.Steps, step)
}

// putPlan stores the plan; the door knows it from then on.
func (s *stage) putPlan(string, args) {
	p := s.plan.WithDefaults()
	if err := p.Validate(0); err != nil {
		s.t.Fatal(err)
	}
	s.store.addPlan(s.plan)
	if s.plans[p.Name] == nil {
		s.plans[p.Name] = map[int64]*core.Plan{}
	}
	s.plans[p.Name][p.Version] = &p
	for _, a := range s.agents {
		a.serve(&p)
	}
}

func (s *stage) undoable(c *core.Command) bool {
	for _, p := range s.plans[c.Type] {
		if i := p.StepIndex(c.Step); i >= 0 {
			return p.Steps[i].Undoable
		}
	}
	return false
}

// Plan implements ingest.Plans.
func (s *stage) Deprecated(string, int64) bool { return false }

func (s *stage) Plan(taskType string, version int64) *core.Plan {
	var highest *core.Plan
	for _, p := range s.plans[taskType] {
		if version != 0 && p.Version != version {
			continue
		}
		if highest == nil || p.Version > highest.Version {
			highest = p
		}
	}
	return highest
}

// Reload implements ingest.Plans.
func (s *stage) Reload(done func(error)) { done(nil) }

// Publish implements ingest.Log.
func (s *stage) Publish(partition int, subs []core.Submission, done func(uint64, error)) {
	pos := s.append(&s.tasks, stageMessage{partition: partition, subs: slices.Clone(subs)})
	s.say("ingest", "stores", "tasks %d: %s", pos, &s.tasks.messages[pos-1])
	done(pos, nil)
}

func (s *stage) partitionOf(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(core.RootID(id)))
	return int(h.Sum32() % uint32(s.partitions))
}

func (s *stage) openDoor() {
	door, err := ingest.NewDoor(ingest.Config{
		StreamOf: func(int) string { return "tasks" }, Partitions: s.partitions, PartitionOf: func(id string, _ int) int { return s.partitionOf(id) },
		CheckReplyTo: func(string) error { return nil },
	}, s, s)
	if err != nil {
		s.t.Fatal(err)
	}
	s.door = door
}

// submit is a client at the fast door: submit t1 type=order input={"n":1} start-at=10s complete-by=30s.
func (s *stage) submit(id string, a args) {
	who := a.or("by", "client")
	s.enter(ingest.Request{
		Form: submit.Form{Type: a["type"], ID: id, Input: []byte(a.or("input", "{}")), ReplyTo: who, CompleteBy: a["complete-by"], StartAt: a["start-at"]},
		Answer: func(r ingest.Answer) {
			if r.Err != nil {
				s.say(who, "is told", "%s is refused, %d: %s", r.Task, r.Err.Code, r.Err.Description)
				return
			}
			s.accepted[id] = true
			s.say(who, "is told", "%s is stored at tasks %d", r.Task, r.Seq)
		},
	})
}

// plain is a client of the stream endpoint: a message straight into the stream, unchecked.
func (s *stage) plain(id string, a args) {
	sub := core.Submission{Type: a["type"], ID: id, Input: []byte(a.or("input", "{}")), ReplyTo: a.or("by", "client"), At: s.now}
	pos := s.append(&s.tasks, stageMessage{partition: s.partitionOf(id), subs: []core.Submission{sub}})
	s.accepted[id] = true
	s.say(sub.ReplyTo, "publishes", "tasks %d: submit %s", pos, id)
}

// submitMany submits many at once: submit-many 1000 type=order prefix=t.
func (s *stage) submitMany(many string, a args) {
	for i := range s.number(many) {
		id := fmt.Sprintf("%s%d", a.or("prefix", "t"), i+1)
		s.enter(ingest.Request{Form: submit.Form{Type: a["type"], ID: id, Input: []byte("{}")}, Answer: func(r ingest.Answer) {
			if r.Err != nil {
				s.wrong("%s is refused: %s", id, r.Err.Description)
				return
			}
			s.accepted[id] = true
			s.say("client", "is told", "stored")
		}})
	}
}

func (s *stage) enter(r ingest.Request) {
	if s.door == nil {
		s.openDoor()
	}
	s.door.Submit(s.now, r)
	s.flushDoor()
}

func (s *stage) flushDoor() {
	s.door.Flush(s.now)
	for due := s.door.Due(s.now); due != 0; due = s.door.Due(s.now) {
		if due > s.now {
			s.after(due.Sub(s.now), s.flushDoor)
			return
		}
		s.door.Flush(s.now)
	}
}

// ask is a person or a client at the control stream: cancel t1 by=olga reason=why; about many tasks at once, each at
// its journal row: undo t1@4,t2@4 by=olga; again=1: the same message once more.
func (s *stage) ask(kind core.EventKind) func(string, args) {
	return func(id string, a args) {
		c := core.Control{
			Kind: kind, ID: id, Type: a["type"], Actor: a.or("by", "client"), Reason: a["reason"], Step: a["step"], As: core.State(a["as"]),
			IfSeq: int64(s.number(a["if-seq"])), Input: []byte(a["input"]), Result: []byte(a["result"]),
		}
		partition := s.nameMany(&c)
		if until := a["until"]; until != "" {
			c.Until = stageBegan.Add(s.duration(until))
		}
		for range 1 + s.number(a["again"]) {
			pos := s.append(&s.controls, stageMessage{partition: partition, control: c})
			s.say(c.Actor, "asks", "controls %d: %s %s", pos, eventWords[kind], id)
		}
	}
}

// nameMany turns the id t1@4,t2@4 of a request into numbers and journal rows. It returns the partition.
func (s *stage) nameMany(c *core.Control) int {
	if !strings.Contains(c.ID, "@") {
		return s.partitionOf(c.ID)
	}
	ids := strings.Split(c.ID, ",")
	c.ID = ""
	for _, one := range ids {
		id, seq, _ := strings.Cut(one, "@")
		saved, ok := s.saved(id)
		if !ok {
			s.t.Fatalf("%s is no task", id)
		}
		c.Numbers, c.Seqs = append(c.Numbers, saved.Row.Number), append(c.Seqs, int64(s.number(seq)))
		ids[0] = id
	}
	return s.partitionOf(ids[0])
}

// hand is a person who does what a step should have done: hand t1 step=ship by=olga.
func (s *stage) hand(id string, a args) {
	saved, ok := s.saved(id)
	if !ok {
		s.t.Fatalf("%s is no task", id)
	}
	plan := s.plans[saved.Row.Type][saved.Row.PlanVersion]
	step := plan.Steps[plan.StepIndex(a["step"])]
	key := core.Key(id, step.Name, saved.Row.Round)
	s.agent(step.Agent).book.on[key] = true
	s.say(a.or("by", "olga"), "does", "%s by hand", key)
}
