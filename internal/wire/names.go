package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// Version is the version of every encoding on the wire.
const Version = 1

// DefaultNamespace is what names begin with where nothing else is configured.
const DefaultNamespace = "duly"

// namespaceBytesMax bounds a namespace.
const namespaceBytesMax = 32

// Names are the names of one installation on NATS: its namespace is the first
// token of every subject and, in upper case, the prefix of every stream and
// bucket. The zero value has DefaultNamespace. Two values of the same namespace
// need not be equal by ==.
type Names struct{ set *nameSet }

// nameSet holds the prefixes that names are built from, computed once.
type nameSet struct {
	namespace, upper string // upper ends with _
	root             string // of every subject, ends with a dot

	submit, in, tasks, do, undo, reply, control, events, live, dead, ask, alerts string
	batchDo, batchUndo, batchReply                                               string
}

var defaultNames = newNameSet(DefaultNamespace) // never changed

// NewNames are the names of a namespace: 1 to namespaceBytesMax characters of a-z,
// 0-9, - and _, the first a letter. An empty one is DefaultNamespace. The error says
// what is wrong with it.
func NewNames(namespace string) (Names, error) {
	if namespace == "" {
		return Names{}, nil
	}
	if n := len(namespace); n > namespaceBytesMax {
		return Names{}, fmt.Errorf("namespace: %q has %d bytes, want 1 to %d", Short(namespace), n, namespaceBytesMax)
	}
	for i := range len(namespace) {
		c := namespace[i]
		letter := c >= 'a' && c <= 'z'
		if i == 0 && !letter {
			return Names{}, fmt.Errorf("namespace: %q begins with %q, want a letter of a-z", namespace, c)
		}
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' {
			return Names{}, fmt.Errorf("namespace: %q: character %d is %q, want a-z, 0-9, - or _", namespace, i+1, c)
		}
	}
	if slices.Contains(DefaultReplyPrefixes, namespace+".") {
		return Names{}, fmt.Errorf("namespace: requests to another installation could lead it to subjects of %q", namespace)
	}
	return Names{newNameSet(namespace)}, nil
}

func newNameSet(namespace string) *nameSet {
	root := namespace + "."
	return &nameSet{
		namespace: namespace, upper: strings.ToUpper(namespace) + "_", root: root,
		submit: root + "submit.", in: root + "in.", tasks: root + "tasks.", do: root + "do.", undo: root + "undo.",
		reply: root + "reply.", control: root + "control.", events: root + "events.", live: root + "live.",
		dead: root + "dead.", ask: root + "ask.", alerts: root + "alerts.",
		batchDo: root + "batch.do.", batchUndo: root + "batch.undo.", batchReply: root + "batch.reply.",
	}
}

func (n Names) get() *nameSet {
	if n.set == nil {
		return defaultNames
	}
	return n.set
}

// Namespace is what the names begin with.
func (n Names) Namespace() string { return n.get().namespace }

// StreamTasks holds submissions, by partition.
func (n Names) StreamTasks() string { return n.get().upper + "TASKS" }

// StreamControl holds requests about tasks that exist, by partition.
func (n Names) StreamControl() string { return n.get().upper + "CONTROL" }

// StreamEvents holds how tasks ended.
func (n Names) StreamEvents() string { return n.get().upper + "EVENTS" }

// StreamDead holds what could not be decoded.
func (n Names) StreamDead() string { return n.get().upper + "DEAD" }

// StreamAlerts holds what operators must know.
func (n Names) StreamAlerts() string { return n.get().upper + "ALERTS" }

// The queue groups.
const (
	GroupIngest = "ingest" // the nodes that serve the request endpoint of submissions
	GroupAgent  = "q"      // the instances of one agent
	GroupPlans  = "plans"  // the nodes that serve duly.plans.apply
	GroupAsk    = "ask"    // the nodes that serve duly.ask.<kind>
)

// The headers.
const (
	HeaderCompleteBy = "Duly-Complete-By"  // RFC 3339 or a duration
	HeaderVersion    = "Duly-Plan-Version" // of the plan: a number, or newest, which is the default
	HeaderReplyTo    = "Duly-Reply-To"     // the submitter's private status subject
	HeaderTrace      = "traceparent"       // W3C trace context
	HeaderLabels     = "Duly-Labels"       // key=value, joined by commas; see core.ParseLabels
	HeaderCause      = "Duly-Cause"        // of a dead letter: why
	HeaderSubject    = "Duly-Subject"      // of a dead letter: the subject it came on
	HeaderInstance   = "Duly-Instance"     // of a reply: which instance of the agent answers
	HeaderDryRun     = "Duly-Dry-Run"      // of a command, "1": a copy for an agent without effects
	HeaderError      = "Nats-Service-Error"
	HeaderErrorCode  = "Nats-Service-Error-Code"
)

// Keys of an agent's metadata in NATS's service discovery.
const (
	MetaAgent = "duly_agent" // its name
	MetaWire  = "duly_wire"  // version of the wire
	MetaBatch = "duly_batch" // version of the batches it takes; absent: none

	MetaVariant = "duly_variant" // of an instance that listens as a variant; see VariantOf
	MetaDryRun  = "duly_dry_run" // of an agent without effects, "1": commands with HeaderDryRun alone
)

// DryRun is the value of HeaderDryRun and of MetaDryRun.
const DryRun = "1"

// ServiceName is an agent's name in NATS's service discovery, which knows no dots and is common to all namespaces. The first -
// ends the namespace, which has none here: else prod with the agent eu-pay and prod-eu with pay were one service.
func (n Names) ServiceName(agent string) string {
	return servicePrefix.Replace(n.get().namespace) + "-" + strings.ReplaceAll(agent, ".", "_")
}

var servicePrefix = strings.NewReplacer("-", "_", "_", "U") // a namespace has no capital

// VariantOf is what stands in place of an agent's name in the subjects that a variant of it listens on: mappings of NATS send
// it a share of the agent's commands. Everything else, its replies and its service, has the agent's own name.
func VariantOf(agent, variant string) string {
	if variant == "" {
		return agent
	}
	return agent + "-" + variant
}

// SubjectPlansApply is where plans are handed in.
func (n Names) SubjectPlansApply() string { return n.get().root + "plans.apply" }

// SubjectPlansChanged is where a change of the plans is announced.
func (n Names) SubjectPlansChanged() string { return n.get().root + "plans.changed" }

// SubjectPausesChanged is where a change of the pauses or of the breakers is announced.
func (n Names) SubjectPausesChanged() string { return n.get().root + "pauses.changed" }

// PatternSubmit selects the request endpoint of all tasks.
func (n Names) PatternSubmit() string { return n.get().submit + "*.*" }

// PatternPack selects the packs of all partitions.
func (n Names) PatternPack() string { return n.get().tasks + "*.pack" }

// PatternTasks selects the submissions of all partitions, from both endpoints.
func (n Names) PatternTasks() string { return n.get().tasks + ">" }

// PatternControl selects the control messages of all partitions.
func (n Names) PatternControl() string { return n.get().control + "*" }

// PatternEvents selects how tasks of all types ended.
func (n Names) PatternEvents() string { return n.get().events + "*.*" }

// PatternErrors selects what ended in error.
func (n Names) PatternErrors() string { return n.get().events + "*." + string(core.StateError) }

// PatternAsk selects all requests about tasks.
func (n Names) PatternAsk() string { return n.get().ask + ">" }

// PatternReplies selects the replies to the commands of all partitions.
func (n Names) PatternReplies() string { return n.get().reply + "*.>" }

// PatternBatchReplies selects an agent's batches of replies, to all senders; of an empty
// name, those of all agents.
func (n Names) PatternBatchReplies(agent string) string {
	if agent == "" {
		return n.get().batchReply + "*.>"
	}
	return n.get().batchReply + "*." + agent + ".*"
}

// PatternIn selects the stream endpoint of all tasks.
func (n Names) PatternIn() string { return n.get().in + "*.*" }

// PatternDead selects the dead letters of all streams.
func (n Names) PatternDead() string { return n.get().dead + "*" }

// PatternAlerts selects all alerts.
func (n Names) PatternAlerts() string { return n.get().alerts + "*" }

// TasksTransform is the destination of the task stream's subject transform, which gives
// a subject of the stream endpoint its partition.
func (n Names) TasksTransform(partitions int) string {
	return fmt.Sprintf("%s{{partition(%d,2)}}.{{wildcard(1)}}.{{wildcard(2)}}", n.get().tasks, partitions)
}

// noType stands in subjects for a task type outside its alphabet.
const noType = "_"

// SubmitSubject is the request endpoint of one task: a request there is answered when the
// submission is stored.
func (n Names) SubmitSubject(taskType, id string) string {
	return n.get().submit + taskType + "." + id
}

// InSubject is the stream endpoint of one task: a JetStream publish there is the submission.
func (n Names) InSubject(taskType, id string) string { return n.get().in + taskType + "." + id }

// PackSubject is where packs of submissions of a partition go.
func (n Names) PackSubject(partition int) string { return numbered(n.get().tasks, partition, ".pack") }

// TasksPattern selects the submissions of a partition, from both endpoints.
func (n Names) TasksPattern(partition int) string { return numbered(n.get().tasks, partition, ".>") }

// CommandSubject is where an agent listens for do or undo.
func (n Names) CommandSubject(agent string, undo bool) string {
	if undo {
		return n.get().undo + agent
	}
	return n.get().do + agent
}

// BatchSubject is where an agent that announces MetaBatch listens for several commands in
// one message.
func (n Names) BatchSubject(agent string, undo bool) string {
	if undo {
		return n.get().batchUndo + agent
	}
	return n.get().batchDo + agent
}

// BatchReplyPrefix begins the reply subjects of one sender's batches; token is unique to
// the sender.
func (n Names) BatchReplyPrefix(token string) string { return n.get().batchReply + token + "." }

// IsBatchReply reports whether batches of an agent's replies may go to a subject:
// duly.batch.reply.<sender>.<agent>.<number>, from older senders without the agent.
func (n Names) IsBatchReply(subject, agent string) bool {
	rest, ok := strings.CutPrefix(subject, n.get().batchReply)
	token, rest, two := strings.Cut(rest, ".")
	number, _ := strings.CutPrefix(rest, agent+".")
	return ok && two && token != "" && number != "" && !strings.ContainsAny(token+number, "*> ") && !strings.Contains(number, ".")
}

// IsReply reports whether agents answer at a subject: to one command or to a batch.
func (n Names) IsReply(subject string) bool {
	return strings.HasPrefix(subject, n.get().reply) || strings.HasPrefix(subject, n.get().batchReply)
}

// ReplySubject is where the answer to one command goes. Its numbers say which command it is: the
// reply; Signer.ReplySubject adds the token.
func (n Names) ReplySubject(partition int, number, seq int64) string {
	var a [96]byte
	return string(n.appendReply(a[:0], partition, number, seq))
}

func (n Names) appendReply(b []byte, partition int, number, seq int64) []byte {
	b = append(b, n.get().reply...)
	b = strconv.AppendInt(b, int64(partition), 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, number, 10)
	b = append(b, '.')
	return strconv.AppendInt(b, seq, 10)
}

// ReplyPattern selects the replies to a partition's commands. It leaves room
// for further tokens after the numbers.
func (n Names) ReplyPattern(partition int) string { return numbered(n.get().reply, partition, ".>") }

// ControlSubject is where control messages of a partition go.
func (n Names) ControlSubject(partition int) string { return numbered(n.get().control, partition, "") }

// EventSubject is where the endings of a type in that state are published: processed in
// packs, the others one by one while they are few.
func (n Names) EventSubject(taskType, state string) string {
	return n.get().events + safeType(taskType) + "." + state
}

// EventsAbout matches the event stream's subjects of a type and a state; what is empty is any.
func (n Names) EventsAbout(taskType, state string) string {
	about := "*"
	if taskType != "" {
		about = safeType(taskType)
	}
	if state == "" {
		state = "*"
	}
	return n.get().events + about + "." + state
}

// LiveSubject is where a task's statuses are published as they happen; they are not stored.
func (n Names) LiveSubject(taskType, id string) string { return n.get().live + taskType + "." + id }

// StepsSubject is where steps of tasks of a type are told while someone watches them; an empty type is any. They are not
// stored.
func (n Names) StepsSubject(taskType string) string {
	if taskType == "" {
		return n.get().root + "steps.*"
	}
	return n.get().root + "steps." + safeType(taskType)
}

// SubjectWatched is where those who watch steps say again and again what they want to hear.
func (n Names) SubjectWatched() string { return n.get().root + "watched" }

// DeadSubject is where dead letters of a stream go.
func (n Names) DeadSubject(stream string) string { return n.get().dead + stream }

// AlertSubject is where alerts of a name are stored: a condition's, or that of a kind of event.
func (n Names) AlertSubject(name string) string { return n.get().alerts + safeType(name) }

// AskSubject is where requests about tasks of any type go; kind is cancel, undo, resubmit,
// resolve, extend, get or list.
func (n Names) AskSubject(kind string) string { return n.get().ask + kind }

// AskTypeSubject is where requests about tasks of one type go: a subject of its own, so
// that permissions can tell types apart.
func (n Names) AskTypeSubject(kind, taskType string) string {
	return n.get().ask + kind + "." + taskType
}

// ConsumerName is the durable consumer of a partition's owner under an epoch;
// n rises each time that it is created again.
func ConsumerName(partition int, epoch int64, n int) string {
	return fmt.Sprintf("p%02d-e%d-%d", partition, epoch, n)
}

// PartitionOf is the partition of a task id among that many: FNV-1a of 32 bits,
// as the server's own partition() transform, which places what comes to the stream endpoint. A child is in that of its
// root.
func PartitionOf(id string, partitions int) int {
	id = core.RootID(id)
	h := uint32(2166136261)
	for i := 0; i < len(id); i++ {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return int(h % uint32(partitions))
}

func numbered(before string, n int, after string) string {
	var a [64]byte
	b := append(a[:0], before...)
	b = strconv.AppendInt(b, int64(n), 10)
	return string(append(b, after...))
}

// safeType keeps a type from the stream endpoint, which is not checked there, from
// breaking a subject.
func safeType(taskType string) string {
	if core.CheckName("type", taskType) != nil {
		return noType
	}
	return taskType
}

// ConsumerForward is the durable consumer of StreamIn that schedulers share.
const ConsumerForward = "forward"

// ConsumerAlerts is the durable consumer that supervisors share: it holds the endings in
// error of which no alert has been sent.
const ConsumerAlerts = "alerts"

// ConsumerDelivery is the durable consumer of the supervisors' leader: it holds the alerts that are not delivered yet.
const ConsumerDelivery = "delivery"
