package rights

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// The kinds of users.
const (
	Ingest       = "ingest"
	Scheduler    = "scheduler"
	Supervisor   = "supervisor"
	Agent        = "agent"         // of package duly
	ForeignAgent = "foreign-agent" // of any other NATS client
	Submitter    = "submitter"
	approver     = "approver" // of what others submit
	Operator     = "operator"
)

// Kinds are all of them.
var Kinds = []string{Ingest, Scheduler, Supervisor, Agent, ForeignAgent, Submitter, approver, Operator}

// Right is one subject, or a pattern, that a user may publish or subscribe to.
type Right struct {
	Publish bool // else it is to subscribe
	Subject string
	Queue   string // the only queue group to subscribe with; empty: none, or any
	// Needed: a user without it cannot do its work. Others matter for something rare.
	Needed bool
}

// String is the right as nats-server's configuration has it.
func (r Right) String() string {
	if r.Queue != "" {
		return r.Subject + " " + r.Queue
	}
	return r.Subject
}

// Answers are those a user may give to requests that it hears, where it may not publish
// otherwise.
type Answers struct {
	Max    int           // to one request
	Within time.Duration // of the request
}

// answersSoon is for requests that are answered at once.
var answersSoon = Answers{Max: 1, Within: 2 * time.Minute}

// Set is what one user may do.
type Set struct {
	Rights      []Right
	DenyPublish []string // patterns, out of what Rights allow
	Answers     Answers
}

// Options are the settings that sets depend on.
type Options struct {
	Names wire.Names
	Inbox string // what the subjects begin with that answers to the user come to
	// StatusTo are prefixes of the subjects that submitters want statuses sent to, as the
	// setting reply-to-prefixes has them, and Inboxes what the inboxes of submitters begin
	// with. Both are for schedulers.
	StatusTo, Inboxes []string
	AnswerWithin      time.Duration // how long an agent may take for one command
	PlainDoor         bool          // a submitter may publish to the task stream itself
	TaskStreams       int           // how many there are; 0: 1
	Events            bool          // a submitter may read the event stream about its types, a node with the role ingest all of it
}

// JetStream's subjects.
const (
	api  = "$JS.API."
	ack  = "$JS.ACK."
	flow = "$JS.FC."
)

// Of is the set of a kind of user. names are those of its agents or the types of its
// tasks. Errors: a kind that there is not, names that cannot be, or none.
func Of(kind string, names []string, o Options) (Set, error) {
	check := func(what string, check func(string) error) error {
		if len(names) == 0 {
			return fmt.Errorf("%s: no %s given, want %s:<%s>", kind, what, kind, what)
		}
		for _, name := range names {
			if err := check(name); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
		}
		return nil
	}
	b := &builder{o: o}
	switch kind {
	case Agent, ForeignAgent:
		if err := check("agent", core.CheckAgent); err != nil {
			return Set{}, err
		}
		for _, name := range names {
			b.agent(name, kind == Agent)
		}
	case Submitter, approver:
		if err := check("type", func(name string) error { return core.CheckName("type", name) }); err != nil {
			return Set{}, err
		}
		for _, name := range names {
			b.asker(name, map[string]string{Submitter: "cancel", approver: "signal"}[kind])
			if kind == Submitter {
				b.submitter(name)
			}
		}
		b.inbox()
	case Ingest, Scheduler, Supervisor, Operator:
		if len(names) > 0 {
			return Set{}, fmt.Errorf("%s has no names, got %q", kind, names)
		}
		map[string]func(){Ingest: b.ingest, Scheduler: b.scheduler, Supervisor: b.supervisor, Operator: b.operator}[kind]()
		b.inbox()
	default:
		return Set{}, fmt.Errorf("unknown kind of user %q, want one of %s", kind, strings.Join(Kinds, ", "))
	}
	return b.set, nil
}

// builder makes one set.
type builder struct {
	o   Options
	set Set
}

func (b *builder) publish(subjects ...string) {
	for _, s := range subjects {
		b.set.Rights = append(b.set.Rights, Right{Publish: true, Subject: s, Needed: true})
	}
}

// seldom are rights to publish without which only something rare is missing.
func (b *builder) seldom(subjects ...string) {
	for _, s := range subjects {
		b.set.Rights = append(b.set.Rights, Right{Publish: true, Subject: s})
	}
}

func (b *builder) subscribe(subject, queue string) {
	b.set.Rights = append(b.set.Rights, Right{Subject: subject, Queue: queue, Needed: true})
}

func (b *builder) inbox() {
	if b.o.Inbox != "" {
		b.subscribe(b.o.Inbox+".>", "")
	}
}

// node is what every node needs, whatever its role: it looks at the streams, watches the
// live nodes, compares its clock and tells what is wrong with it.
func (b *builder) node() {
	n := b.o.Names
	nodes := wire.BucketStream(n.BucketNodes())
	b.publish(api + "INFO")
	for _, stream := range append(b.taskStreams(), n.StreamEvents(), n.StreamDead(), n.StreamAlerts(), nodes, wire.BucketStream(n.BucketPartitions())) {
		b.publish(api + "STREAM.INFO." + stream)
	}
	b.watch(n.BucketNodes(), wire.KeyNodePrefix+">")
	b.publish(get(n.BucketNodes(), wire.KeyBeat))
	b.publish(n.PatternAlerts())
	b.seldom(natsbus.SubjectUserInfo)
}

// watch is to follow keys of a bucket.
func (b *builder) watch(bucket, keys string) {
	stream := wire.BucketStream(bucket)
	b.publish(api+"CONSUMER.CREATE."+stream+".*."+key(bucket, keys), api+"CONSUMER.DELETE."+stream+".*")
	b.seldom(flow + stream + ".>")
}

// key is the subject of a bucket's key.
func key(bucket, key string) string { return "$KV." + bucket + "." + key }

// get is to read a bucket's key.
func get(bucket, keys string) string {
	return api + "DIRECT.GET." + wire.BucketStream(bucket) + "." + key(bucket, keys)
}

func (b *builder) ingest() {
	n := b.o.Names
	b.node()
	b.publish(n.PatternPack(), n.PatternControl())
	for i := range b.streams() {
		b.seldom(api + "CONSUMER.LIST." + n.StreamTasksAt(i)) // how far partitions are read
	}
	// What operators ask of it: which agents live, and where partitions and pauses are to be.
	b.seldom(natsbus.SubjectStatsOf(n, ""), n.SubjectAway(), n.SubjectPausesChanged(), key(n.BucketPartitions(), wire.WishesPattern), get(n.BucketPartitions(), wire.WishesPattern))
	b.subscribe(n.PatternSubmit(), wire.GroupIngest)
	b.subscribe(n.PatternAsk(), wire.GroupAsk)
	b.subscribe(n.SubjectPlansChanged(), "")
	b.subscribe(n.SubjectReading(), "")
	if b.o.Events {
		b.events(n.PatternEvents())
		b.publish(n.SubjectWatched())
		b.subscribe(n.StepsSubject(""), "")
	}
	b.set.Answers = answersSoon
}

func (b *builder) scheduler() {
	n := b.o.Names
	b.node()
	b.publish(api + "STREAM.INFO." + wire.BucketStream(n.BucketKeys()))
	for _, undo := range []bool{false, true} {
		b.publish(n.CommandSubject(">", undo), n.BatchSubject(">", undo))
	}
	b.publish(n.PatternProbe())
	b.publish("$SRV.INFO." + "*")
	for i := range b.streams() {
		b.seldom(api + "CONSUMER.LIST." + n.StreamTasksAt(i)) // how far it is behind, for /metrics
	}
	b.publish(n.PatternEvents(), n.LiveSubject("*", "*"), n.DeadSubject("*"), n.SubjectPlansChanged(), n.SubjectReading())
	// It makes and changes the streams, and makes room in them.
	streams := append(b.taskStreams(), n.StreamEvents(), n.StreamDead(), n.StreamAlerts(), wire.BucketStream(n.BucketNodes()))
	for _, stream := range streams { // where it publishes: see Conn.Guard
		b.publish(api + "STREAM.PURGE." + stream)
	}
	for _, stream := range append(streams, wire.BucketStream(n.BucketKeys()), wire.BucketStream(n.BucketPartitions())) {
		b.publish(api+"STREAM.CREATE."+stream, api+"STREAM.UPDATE."+stream)
	}
	for i := range b.streams() {
		b.reads(n.StreamTasksAt(i), n.PatternTasks())
		b.reads(n.StreamControlAt(i), n.PatternControl())
	}
	if b.streams() > 1 {
		door := n.StreamIn()
		b.publish(n.PatternSingles(), api+"CONSUMER.CREATE."+door+"."+wire.ConsumerForward, api+"CONSUMER.MSG.NEXT."+door+"."+wire.ConsumerForward, ack+door+"."+wire.ConsumerForward+".>")
		b.seldom(api + "CONSUMER.INFO." + door + "." + wire.ConsumerForward)
	}
	b.watch(n.BucketPartitions(), ">")
	b.publish(api + "CONSUMER.CREATE." + wire.BucketStream(n.BucketPartitions()) + ".*") // of several keys
	b.publish(key(n.BucketPartitions(), ">"), get(n.BucketPartitions(), ">"))
	b.publish(key(n.BucketNodes(), wire.KeyBeat), key(n.BucketNodes(), wire.KeyNodePrefix+"*"), get(n.BucketNodes(), wire.KeyNodePrefix+"*"))
	b.publish(key(n.BucketKeys(), wire.KeyReplies), get(n.BucketKeys(), wire.KeyReplies))
	b.statuses()
	b.subscribe(n.PatternReplies(), "")
	b.subscribe(n.PatternBatchReplies(""), "")
	b.subscribe(n.SubjectPlansApply(), wire.GroupPlans)
	b.subscribe(n.SubjectPlansChanged(), "")
	b.set.Rights = append(b.set.Rights, Right{Subject: n.SubjectPausesChanged()}) // without it, it reads them later
	b.seldom(n.SubjectPausesChanged())                                            // it has changed a breaker
	b.set.Rights = append(b.set.Rights, Right{Subject: n.SubjectAway()})
	b.seldom(n.StepsSubject("")) // without these, steps are not told
	b.set.Rights = append(b.set.Rights, Right{Subject: n.SubjectWatched()})
	b.set.Answers = answersSoon
}

// streams is how many task streams there are.
func (b *builder) streams() int { return max(1, b.o.TaskStreams) }

// taskStreams are the streams of submissions and of requests about tasks.
func (b *builder) taskStreams() []string {
	n := b.o.Names
	var all []string
	for i := range b.streams() {
		all = append(all, n.StreamTasksAt(i), n.StreamControlAt(i))
	}
	if b.streams() > 1 {
		all = append(all, n.StreamIn())
	}
	return all
}

// reads is to read a stream's partitions.
func (b *builder) reads(stream, subjects string) {
	b.publish(api+"CONSUMER.CREATE."+stream+".*."+subjects, api+"STREAM.MSG.GET."+stream, api+"CONSUMER.NAMES."+stream, ack+stream+".>")
	for _, what := range []string{"DELETE", "INFO", "MSG.NEXT"} {
		b.publish(api + "CONSUMER." + what + "." + stream + ".*")
	}
}

// statuses are the submitters' own subjects. A pattern cannot say "begins with _INBOX_",
// so inboxes of their own are named one by one.
func (b *builder) statuses() {
	for _, prefix := range b.o.StatusTo {
		if !strings.HasSuffix(prefix, "_") {
			b.seldom(strings.TrimSuffix(prefix, ".") + ".>")
		}
		for _, inbox := range b.o.Inboxes {
			if strings.HasPrefix(inbox+".", prefix) {
				b.seldom(inbox + ".>")
			}
		}
	}
}

func (b *builder) supervisor() {
	n := b.o.Names
	b.node()
	events := n.StreamEvents()
	b.publish(n.PatternBooks(), n.PatternControl(), key(n.BucketNodes(), wire.KeyLeader), get(n.BucketNodes(), wire.KeyLeader))
	b.publish(api+"CONSUMER.CREATE."+events+"."+wire.ConsumerAlerts+"."+n.PatternErrors(),
		api+"CONSUMER.MSG.NEXT."+events+"."+wire.ConsumerAlerts, ack+events+"."+wire.ConsumerAlerts+".>")
	b.seldom(api + "CONSUMER.INFO." + events + "." + wire.ConsumerAlerts)
	b.seldom(n.PatternSubmit()) // tasks of schedules
	alerts := n.StreamAlerts()
	b.publish(api+"CONSUMER.CREATE."+alerts+"."+wire.ConsumerDelivery+"."+n.PatternAlerts(),
		api+"CONSUMER.MSG.NEXT."+alerts+"."+wire.ConsumerDelivery, ack+alerts+"."+wire.ConsumerDelivery+".>")
	b.seldom(api + "CONSUMER.INFO." + alerts + "." + wire.ConsumerDelivery)
}

func (b *builder) agent(name string, own bool) {
	n := b.o.Names
	for _, undo := range []bool{false, true} {
		b.subscribe(n.CommandSubject(name, undo), wire.GroupAgent)
	}
	b.subscribe(n.SubjectBooks(name), wire.GroupAgent)
	b.subscribe(n.SubjectProbe(name), wire.GroupAgent)
	b.set.Answers = Answers{Max: 1, Within: b.o.AnswerWithin}
	if !own {
		return
	}
	for _, undo := range []bool{false, true} {
		b.subscribe(n.BatchSubject(name, undo), wire.GroupAgent)
	}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		for _, of := range []string{"", "." + n.ServiceName(name), "." + n.ServiceName(name) + ".*"} {
			b.subscribe("$SRV."+verb+of, "")
		}
	}
	b.publish(n.PatternBatchReplies(name))
}

// asker is who looks at tasks of a type, and asks one thing of them. Who submits does not answer the steps that ask whether
// the task may go on: that would be its own approval.
func (b *builder) asker(taskType, what string) {
	for _, what := range []string{"get", "list", what} {
		b.publish(b.o.Names.AskTypeSubject(what, taskType))
	}
}

func (b *builder) submitter(taskType string) {
	n := b.o.Names
	b.publish(n.SubmitSubject(taskType, "*"))
	b.subscribe(n.LiveSubject(taskType, "*"), "")
	if b.o.PlainDoor {
		b.publish(n.InSubject(taskType, "*"))
	}
	if b.o.Events {
		b.events(n.EventSubject(taskType, "*"))
	}
}

// events is to read the event stream about subjects, by readers of one's own.
func (b *builder) events(subjects string) {
	events := b.o.Names.StreamEvents()
	b.publish(api+"STREAM.INFO."+events, api+"CONSUMER.CREATE."+events+".*."+subjects,
		api+"CONSUMER.MSG.NEXT."+events+".*", api+"CONSUMER.INFO."+events+".*", api+"CONSUMER.DELETE."+events+".*")
	// What supervisors read is not theirs. The names of other consumers cannot be guessed.
	for _, what := range []string{"CREATE", "MSG.NEXT", "INFO", "DELETE"} {
		deny := api + "CONSUMER." + what + "." + events + "." + wire.ConsumerAlerts
		if what == "CREATE" {
			deny += ".>"
		}
		b.set.DenyPublish = append(b.set.DenyPublish, deny)
	}
}

func (b *builder) operator() {
	n := b.o.Names
	b.publish(n.PatternAsk(), n.SubjectPlansApply())
}

// Merge is what a user may do that is of several kinds.
func Merge(sets ...Set) Set {
	var all Set
	for _, s := range sets {
		for _, r := range s.Rights {
			i := slices.IndexFunc(all.Rights, func(have Right) bool {
				return have.Publish == r.Publish && have.Subject == r.Subject && have.Queue == r.Queue
			})
			if i < 0 {
				all.Rights = append(all.Rights, r)
				continue
			}
			all.Rights[i].Needed = all.Rights[i].Needed || r.Needed
		}
		all.DenyPublish = append(all.DenyPublish, s.DenyPublish...)
		all.Answers.Max, all.Answers.Within = max(all.Answers.Max, s.Answers.Max), max(all.Answers.Within, s.Answers.Within)
	}
	slices.Sort(all.DenyPublish)
	all.DenyPublish = slices.DeleteFunc(slices.Compact(all.DenyPublish), func(deny string) bool {
		return slices.ContainsFunc(all.Rights, func(r Right) bool { return r.Publish && covers(deny, r.Subject) })
	})
	return all
}
