package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// stageNode is one scheduler process: a shard and what brings its mail.
type stageNode struct {
	s          *stage
	name       string
	cfg        scheduler.Config
	skew       time.Duration // of its clock
	versionMax int64         // the highest plan version its binary knows; 0: all
	old        bool          // its binary knows no steps but calls
	up, frozen bool
	froze      core.Instant // when it last did
	slept      int64        // how often it has stood still for longer than its lease
	life       int
	queued     bool // a cycle is about to be
	shard      *scheduler.Shard
	mail       scheduler.Mail
	feeds      map[int]*stageFeed

	beforeCommit, afterCommit func() error // faults of the next commit with a task in it
}

// stageFeed is the consumer of one partition under one epoch.
type stageFeed struct {
	epoch         int64
	next, control int // indexes into the streams
}

// addNode starts a node, which takes over every partition unless own=none.
func (s *stage) addNode(name string, a args) {
	n := &stageNode{
		s: s, name: name, skew: s.duration(a["skew"]), versionMax: int64(s.number(a["plans-up-to"])), old: a["knows"] == "calls",
		cfg: scheduler.Config{
			Node: name, AgentWindow: s.number(a["window"]), BatchMax: s.number(a["batch"]),
			PublishRetry: time.Second, PlansRetry: 50 * time.Millisecond, Expressions: stageExpressions{s},
		},
	}
	n.cfg.Now, n.cfg.Leased = n.clock, func() int64 { return n.slept }
	s.nodes[name] = n
	s.start(name, nil)
	if a["own"] != "none" {
		s.take(name, args{"p": "all"})
	}
}

func (s *stage) node(name string) *stageNode {
	s.t.Helper()
	n := s.nodes[name]
	if n == nil {
		s.t.Fatalf("no node is called %q", name)
	}
	return n
}

func (n *stageNode) clock() core.Instant { return n.s.now.Add(n.skew) }

// start is a new life, which owns nothing.
func (s *stage) start(name string, _ args) {
	if super := s.supers[name]; super != nil {
		super.begin()
		return
	}
	if agent := s.agents[name]; agent != nil {
		agent.begin()
		return
	}
	n := s.node(name)
	s.lives++
	n.life++
	n.up, n.frozen, n.queued, n.mail, n.feeds = true, false, false, scheduler.Mail{}, map[int]*stageFeed{}
	n.beforeCommit, n.afterCommit = nil, nil
	life, first := n.life, true
	rand := func() float64 {
		if first { // of the commit ids: no two lives share them
			first = false
			return float64(s.lives) / 4096
		}
		return 0.5
	}
	posted := func(m scheduler.PublishedMail) {
		if n.life == life {
			n.mail.Published = append(n.mail.Published, m)
			n.wake()
		}
	}
	n.shard = scheduler.NewShard(n.cfg, nodeStore{s.store, n}, &stageBus{s, n, life}, s.logOf(name), rand, posted, func(scheduler.ProbedMail) {})
}

// crash ends a process at once; at=commit: right after its next commit, before
// anything of it leaves.
func (s *stage) crash(name string, a args) {
	if super := s.supers[name]; super != nil {
		super.up = false
		s.say(name, "crashes", "")
		return
	}
	if agent := s.agents[name]; agent != nil {
		agent.crash()
		return
	}
	n := s.node(name)
	if a["at"] == "commit" {
		n.afterCommit = func() error {
			n.crash("between commit and publish")
			return errCrash
		}
		return
	}
	n.crash("")
}

func (n *stageNode) crash(when string) {
	n.s.say(n.name, "crashes", "%s", when)
	n.life++
	n.up = false
	n.feeds = nil
}

// stageLifeOfLease is for how long a node may stand still before others may take its partitions over.
const stageLifeOfLease = 6 * time.Second

func (s *stage) freeze(name string, _ args) {
	s.node(name).frozen, s.node(name).froze = true, s.now
	s.say(name, "freezes", "")
}

func (s *stage) thaw(name string, _ args) {
	n := s.node(name)
	n.frozen = false
	if s.now.Sub(n.froze) > stageLifeOfLease {
		n.slept++
	}
	s.say(name, "thaws", "")
	for i := range n.mail.Tasks { // it is read from its sockets only now
		n.mail.Tasks[i].At = n.clock()
	}
	for i := range n.mail.Controls {
		n.mail.Controls[i].At = n.clock()
	}
	for i := range n.mail.Replies {
		n.mail.Replies[i].At = n.clock()
	}
	n.wake()
}

// failCommit lets the next commit of a node, or the one after=2 others, fail with nothing written, or
// succeed after another node has taken the partitions over: taken-by=n2.
func (s *stage) failCommit(name string, a args) {
	n := s.node(name)
	left := s.number(a["after"])
	var fail func() error
	fail = func() error {
		if left--; left >= 0 {
			n.beforeCommit = fail
			return nil
		}
		if other := a["taken-by"]; other != "" {
			s.say(name, "stalls", "in the middle of a commit")
			s.take(other, args{"p": a.or("p", "all")})
			s.say(name, "goes on", "with its commit")
			return nil
		}
		return errLost
	}
	n.beforeCommit = fail
}

// poison makes the database refuse one journal row of a task for good.
func (s *stage) poison(id string, a args) {
	_, bare := a["bare"]
	s.store.refuse[id] = refusedRow{int64(s.number(a.or("row", "1"))), bare}
}

// take lets a node take over p=0,1 or p=all.
func (s *stage) take(name string, a args) {
	n := s.node(name)
	if p := a.or("p", "all"); p != "all" {
		for _, text := range strings.Split(p, ",") {
			n.adopt(s.number(text))
		}
		return
	}
	for p := range s.partitions {
		n.adopt(p)
	}
}

// adopt takes a partition over. Other consumers of it are gone with that; what
// their owners have in their mail stays there.
func (n *stageNode) adopt(p int) {
	s := n.s
	if n.feeds[p] != nil {
		n.lose(p)
		n.shard.Drop(p)
	}
	n.feeds[p] = &stageFeed{} // it hears replies from here on
	from, err := n.shard.Adopt(context.Background(), n.clock(), p, scheduler.Ground{Stream: s.tasks.identity, End: s.tasks.end(p), Evidence: s.evidence[p], Former: s.former[p]})
	if err != nil {
		n.lose(p)
		s.say(n.name, "cannot take", "partition %d over: %v", p, err)
		return
	}
	s.say(n.name, "owns", "partition %d, epoch %d; reads tasks from %d, controls from %d; %d in flight",
		p, from.Epoch, from.Cursor+1, from.ControlCursor+1, from.Resumed)
	if s.quiet {
		s.counts[n.name+" resumes"] += from.Resumed
	}
	n.feeds[p] = &stageFeed{epoch: from.Epoch, next: int(from.Cursor), control: int(from.ControlCursor)}
	n.pump(p)
	n.wake()
}

// release is a node that gives its partitions up in good order.
func (s *stage) release(name string, _ args) {
	n := s.node(name)
	for p := range s.partitions {
		if epoch, ok := n.shard.Owns(p); ok {
			if err := s.store.Release(context.Background(), p, epoch); err != nil {
				s.t.Fatal(err)
			}
			n.lose(p)
			n.shard.Drop(p)
			s.say(name, "releases", "partition %d", p)
		}
	}
}

func (n *stageNode) lose(p int) {
	delete(n.feeds, p)
	n.mail.Tasks = slices.DeleteFunc(n.mail.Tasks, func(m scheduler.TaskMail) bool { return m.Partition == p })
	n.mail.Controls = slices.DeleteFunc(n.mail.Controls, func(m scheduler.ControlMail) bool { return m.Partition == p })
}

// pump brings what the streams have for a partition, in order.
func (n *stageNode) pump(p int) {
	s, f := n.s, n.feeds[p]
	if f == nil || f.epoch != s.epoch(p) {
		return
	}
	for ; f.next < len(s.tasks.messages); f.next++ {
		if m := &s.tasks.messages[f.next]; m.partition == p {
			pos := uint64(f.next + 1)
			s.say(n.name, "reads", "tasks %d: %s", pos, m)
			n.mail.Tasks = append(n.mail.Tasks, scheduler.TaskMail{
				Partition: p, Pos: pos, At: n.clock(), Submissions: m.subs, Ack: func() { n.acks(p, pos, m) },
			})
			n.wake()
		}
	}
	for ; f.control < len(s.controls.messages); f.control++ {
		if m := &s.controls.messages[f.control]; m.partition == p {
			s.say(n.name, "reads", "controls %d: %s", f.control+1, m)
			n.mail.Controls = append(n.mail.Controls, scheduler.ControlMail{Partition: p, Pos: uint64(f.control + 1), At: n.clock(), Control: m.control})
			n.wake()
		}
	}
}

// acks checks that a message is let go only when all its tasks are stored.
func (n *stageNode) acks(p int, pos uint64, m *stageMessage) {
	n.s.say(n.name, "acks", "tasks %d", pos)
	if n.s.quiet {
		return
	}
	for i := range m.subs {
		if _, ok := n.s.saved(m.subs[i].ID); !ok && n.s.dead == 0 && len(n.s.refused) == 0 {
			n.s.wrong("%s acknowledges tasks %d of partition %d before task %s is stored", n.name, pos, p, m.subs[i].ID)
		}
	}
}

func (s *stage) epoch(p int) int64 {
	all, err := s.store.Cursors(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range all {
		if all[i].Partition == p {
			return all[i].Epoch
		}
	}
	return 0
}

func (n *stageNode) wake() {
	if n.queued || !n.up || n.frozen {
		return
	}
	n.queued = true
	life := n.life
	n.s.after(0, func() {
		if n.life == life {
			n.queued = false
			n.cycle(false)
		}
	})
}

func (n *stageNode) cycle(flush bool) {
	if !n.up || n.frozen {
		return
	}
	mail, life, stale := n.mail, n.life, n.shard.Stats.Stale
	n.mail = scheduler.Mail{}
	replies := numbersOf(mail.Replies)
	lost, err := n.shard.RunCycle(context.Background(), n.clock(), &mail, flush)
	if n.life != life {
		return
	}
	if d := n.shard.Stats.Stale - stale; d > 0 {
		n.s.say(n.name, "drops", "%d as stale%s", d, replies)
	}
	if err != nil {
		n.s.say(n.name, "gives up", "its partitions: %v", err)
		if errors.Is(err, core.ErrForeignRow) {
			n.s.wrong("a foreign row")
		}
	}
	for _, p := range lost {
		n.lose(p)
	}
	n.arm()
}

func numbersOf(replies []scheduler.ReplyMail) string {
	if len(replies) == 0 || len(replies) > 8 {
		return ""
	}
	text := " of replies"
	for _, r := range replies {
		text += fmt.Sprintf(" #%d", r.Reply.Seq)
	}
	return text
}

// arm arms the next cycle without mail: a wake that is due, or a cursor that
// waits for a commit to ride on.
func (n *stageNode) arm() {
	life := n.life
	if at := n.shard.NextWake(); at != 0 {
		n.s.after(at.Sub(n.clock()), func() {
			if n.life == life && n.shard.NextWake() != 0 && n.shard.NextWake() <= n.clock() {
				n.wake()
			}
		})
	}
	if n.shard.Unsaved() {
		n.s.after(scheduler.DefaultFlushEvery, func() {
			if n.life == life && n.shard.Unsaved() {
				n.cycle(true)
			}
		})
	}
}
