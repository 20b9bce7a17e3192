package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// Version is the version of every encoding on the wire.
const Version = 1

// DefaultNamespace is what names begin with where nothing else is configured.
const DefaultNamespace = "duly"

// NamespaceBytesMax bounds a namespace.
const NamespaceBytesMax = 32

// Names are the names of one installation on NATS: its namespace is the first
// token of every subject and, in upper case, the prefix of every stream and
// bucket. The zero value has DefaultNamespace. Two of the same namespace need
// not be equal.
type Names struct{ set *nameSet }

// nameSet holds what names begin with, put together once.
type nameSet struct {
	namespace, upper string // upper ends with _
	root             string // of every subject, ends with a dot

	submit, in, tasks, do, undo, reply, control, events, live, dead, ask string
	batchDo, batchUndo, batchReply                                       string
}

var defaultNames = newNameSet(DefaultNamespace) // never changed

// NewNames are the names of a namespace: 1 to NamespaceBytesMax of a-z, 0-9, -
// and _, the first a letter. An empty one is DefaultNamespace. The error says what
// is wrong with it.
func NewNames(namespace string) (Names, error) {
	if namespace == "" {
		return Names{}, nil
	}
	if n := len(namespace); n > NamespaceBytesMax {
		return Names{}, fmt.Errorf("namespace: %q has %d bytes, want 1 to %d", Short(namespace), n, NamespaceBytesMax)
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
	return Names{newNameSet(namespace)}, nil
}

func newNameSet(namespace string) *nameSet {
	root := namespace + "."
	return &nameSet{
		namespace: namespace, upper: strings.ToUpper(namespace) + "_", root: root,
		submit: root + "submit.", in: root + "in.", tasks: root + "tasks.", do: root + "do.", undo: root + "undo.",
		reply: root + "reply.", control: root + "control.", events: root + "events.", live: root + "live.",
		dead: root + "dead.", ask: root + "ask.",
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

// BucketNodes holds the leases: a key per live node and one for the leader.
func (n Names) BucketNodes() string { return n.get().upper + "NODES" }

// BucketKeys holds what schedulers share and agents must not read.
func (n Names) BucketKeys() string { return n.get().upper + "KEYS" }

// BucketPartitions holds what is known of each partition's commits outside the database.
func (n Names) BucketPartitions() string { return n.get().upper + "PARTITIONS" }

// KeyReplies is the key in BucketKeys that replies are marked with.
const KeyReplies = "replies"

// Keys of BucketNodes.
const (
	KeyNodePrefix = "node."  // + name of the node
	KeyLeader     = "leader" // the leading supervisor
)

// The queue groups.
const (
	GroupIngest = "ingest" // who serves the fast door
	GroupAgent  = "q"      // the instances of one agent
	GroupPlans  = "plans"  // who serves duly.plans.apply
	GroupAsk    = "ask"    // who serves duly.ask.<kind>
)

// The headers.
const (
	HeaderCompleteBy = "Duly-Complete-By"  // RFC 3339 or a duration
	HeaderVersion    = "Duly-Plan-Version" // of the plan: a number, or newest, which is meant without it
	HeaderReplyTo    = "Duly-Reply-To"     // the submitter's private status subject
	HeaderTrace      = "traceparent"       // W3C trace context
	HeaderCause      = "Duly-Cause"        // of a dead letter: why
	HeaderSubject    = "Duly-Subject"      // of a dead letter: where it was
	HeaderInstance   = "Duly-Instance"     // of a reply: which instance of the agent answers
	HeaderError      = "Nats-Service-Error"
	HeaderErrorCode  = "Nats-Service-Error-Code"
)

// Keys of an agent's metadata in NATS's service discovery.
const (
	MetaAgent = "duly_agent" // its name
	MetaWire  = "duly_wire"  // version of the wire
	MetaBatch = "duly_batch" // version of the batches it takes; absent: none
)

// ServiceName is an agent's name in NATS's service discovery, which knows no
// dots.
func (n Names) ServiceName(agent string) string {
	return n.get().namespace + "-" + strings.ReplaceAll(agent, ".", "_")
}

// SubjectPlansApply is where plans are handed in.
func (n Names) SubjectPlansApply() string { return n.get().root + "plans.apply" }

// SubjectPlansChanged is where a change of the plans is announced.
func (n Names) SubjectPlansChanged() string { return n.get().root + "plans.changed" }

// PatternSubmit selects the fast door of all tasks.
func (n Names) PatternSubmit() string { return n.get().submit + "*.*" }

// PatternPack selects the packs of all partitions.
func (n Names) PatternPack() string { return n.get().tasks + "*.pack" }

// PatternTasks selects the submissions of all partitions, from both doors.
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

func (n Names) PatternIn() string   { return n.get().in + "*.*" }
func (n Names) PatternDead() string { return n.get().dead + "*" }

// tasksTransform is what the task stream makes of a subject of the plain door.
func (n Names) TasksTransform(partitions int) string {
	return fmt.Sprintf("%s{{partition(%d,2)}}.{{wildcard(1)}}.{{wildcard(2)}}", n.get().tasks, partitions)
}

// noType stands in subjects for a task type outside its alphabet.
const noType = "_"

// ErrSubject is wrapped by every error about a subject that cannot be parsed.
var ErrSubject = errors.New("subject refused")

// SubmitSubject is the fast door of one task.
func (n Names) SubmitSubject(taskType, id string) string {
	return n.get().submit + taskType + "." + id
}

// InSubject is the plain door of one task.
func (n Names) InSubject(taskType, id string) string { return n.get().in + taskType + "." + id }

// PackSubject is where packs of submissions of a partition go.
func (n Names) PackSubject(partition int) string { return numbered(n.get().tasks, partition, ".pack") }

// TasksPattern selects the submissions of a partition, from both doors.
func (n Names) TasksPattern(partition int) string { return numbered(n.get().tasks, partition, ".>") }

// CommandSubject is where an agent listens for do or undo.
func (n Names) CommandSubject(agent string, undo bool) string {
	if undo {
		return n.get().undo + agent
	}
	return n.get().do + agent
}

// BatchSubject is where an agent of our own runtime listens for several commands
// in one message.
func (n Names) BatchSubject(agent string, undo bool) string {
	if undo {
		return n.get().batchUndo + agent
	}
	return n.get().batchDo + agent
}

// batchReplyPrefix begins the subjects that one sender hears batches of replies
// on.
func (n Names) BatchReplyPrefix(token string) string { return n.get().batchReply + token + "." }

// isBatchReply reports whether a subject is one that batches of an agent's replies go to:
// duly.batch.reply.<sender>.<agent>.<number>, from older senders without the agent.
func (n Names) IsBatchReply(subject, agent string) bool {
	rest, ok := strings.CutPrefix(subject, n.get().batchReply)
	token, rest, two := strings.Cut(rest, ".")
	number, _ := strings.CutPrefix(rest, agent+".")
	return ok && two && token != "" && number != "" && !strings.ContainsAny(token+number, "*> ") && !strings.Contains(number, ".")
}

// IsReply reports whether a subject is one that agents answer at: of one command, or of
// a batch.
func (n Names) IsReply(subject string) bool {
	return strings.HasPrefix(subject, n.get().reply) || strings.HasPrefix(subject, n.get().batchReply)
}

// ReplySubject is where the answer to one command goes; it is the fence of the
// reply.
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

// EventSubject is where tasks of a type that came to that state are told:
// processed in packs, the others alone while they are rare.
func (n Names) EventSubject(taskType, state string) string {
	return n.get().events + safeType(taskType) + "." + state
}

// LiveSubject is where a task's statuses are published for whoever listens.
func (n Names) LiveSubject(taskType, id string) string { return n.get().live + taskType + "." + id }

// DeadSubject is where dead letters of a stream go.
func (n Names) DeadSubject(stream string) string { return n.get().dead + stream }

// AskSubject is where a person asks something about tasks of any type; the kind is a
// word of ControlKinds, get or list.
func (n Names) AskSubject(kind string) string { return n.get().ask + kind }

// AskTypeSubject is where a client asks something about tasks of one type: a subject of
// its own, so that permissions can tell types apart.
func (n Names) AskTypeSubject(kind, taskType string) string {
	return n.get().ask + kind + "." + taskType
}

// NodeKey is the lease of a node in BucketNodes.
func NodeKey(node string) string { return KeyNodePrefix + node }

// ConsumerName is the durable consumer of a partition's owner under an epoch;
// n rises when it has to be made anew.
func ConsumerName(partition int, epoch int64, n int) string {
	return fmt.Sprintf("p%02d-e%d-%d", partition, epoch, n)
}

// ParseConsumer takes the name of a consumer apart; ok is false for a name that
// is not Duly's.
func ParseConsumer(name string) (partition int, epoch int64, n int, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "p") || !strings.HasPrefix(parts[1], "e") {
		return 0, 0, 0, false
	}
	p, err1 := strconv.ParseUint(parts[0][1:], 10, 31)
	e, err2 := strconv.ParseInt(parts[1][1:], 10, 64)
	c, err3 := strconv.ParseUint(parts[2], 10, 31)
	if err1 != nil || err2 != nil || err3 != nil || e < 0 || ConsumerName(int(p), e, int(c)) != name {
		return 0, 0, 0, false
	}
	return int(p), e, int(c), true
}

// ParseSubmit takes the subject of the fast door apart. The names are checked.
func (n Names) ParseSubmit(subject string) (taskType, id string, err error) {
	rest, ok := strings.CutPrefix(subject, n.get().submit)
	if !ok {
		return "", "", fmt.Errorf("%w: %q is not %s<type>.<id>", ErrSubject, Short(subject), n.get().submit)
	}
	return parseTask(rest)
}

// ParseIn takes the subject of the plain door apart: as it was published, or as
// the stream's transform stored it. The names are not checked.
func (n Names) ParseIn(subject string) (partition int, taskType, id string, err error) {
	if rest, ok := strings.CutPrefix(subject, n.get().tasks); ok {
		number, rest, _ := strings.Cut(rest, ".")
		p, ok := parseNumber(number)
		taskType, id, _ = strings.Cut(rest, ".")
		if ok && p < 1<<31 && taskType != "" && id != "" && !strings.Contains(id, ".") {
			return int(p), taskType, id, nil
		}
	}
	return 0, "", "", fmt.Errorf("%w: %q is not %s<partition>.<type>.<id>", ErrSubject, Short(subject), n.get().tasks)
}

func parseTask(rest string) (taskType, id string, err error) {
	taskType, id, _ = strings.Cut(rest, ".")
	if err := core.CheckName("type", taskType); err != nil {
		return "", "", err
	}
	if err := core.CheckName("id", id); err != nil {
		return "", "", err
	}
	return taskType, id, nil
}

// ParsePack returns the partition of a pack's subject.
func (n Names) ParsePack(subject string) (partition int, ok bool) {
	rest, ok := strings.CutPrefix(subject, n.get().tasks)
	if !ok {
		return 0, false
	}
	number, ok := strings.CutSuffix(rest, ".pack")
	if !ok {
		return 0, false
	}
	p, ok := parseNumber(number)
	return int(p), ok && p < 1<<31
}

// ParseReply takes the subject of a reply apart. Tokens after the third number
// are allowed.
func (n Names) ParseReply(subject string) (partition int, number, seq int64, err error) {
	partition, number, seq, _, ok := n.cutReply(subject)
	if !ok {
		return 0, 0, 0, fmt.Errorf("%w: %q is not %s<partition>.<number>.<seq>", ErrSubject, Short(subject), n.get().reply)
	}
	return partition, number, seq, nil
}

// cutReply does it without an error's text; rest is what follows the third number
// and its dot.
func (n Names) cutReply(subject string) (partition int, number, seq int64, rest string, ok bool) {
	rest, ok = strings.CutPrefix(subject, n.get().reply)
	var has [3]int64
	for i := 0; ok && i < len(has); i++ {
		var token string
		token, rest, _ = strings.Cut(rest, ".")
		has[i], ok = parseNumber(token)
	}
	if !ok || has[0] > 1<<31-1 {
		return 0, 0, 0, "", false
	}
	return int(has[0]), has[1], has[2], rest, true
}

// cutAsk takes a subject of duly.ask.<word> or duly.ask.<word>.<type> apart; without a
// type it is about all.
func (n Names) cutAsk(subject string) (word, taskType string, ok bool) {
	rest, ok := strings.CutPrefix(subject, n.get().ask)
	word, taskType, typed := strings.Cut(rest, ".")
	return word, taskType, ok && (!typed || core.CheckName("type", taskType) == nil)
}

// ParseAsk returns the kind of a request of duly.ask.<kind> or duly.ask.<kind>.<type>,
// and the type.
func (n Names) ParseAsk(subject string) (kind core.EventKind, taskType string, err error) {
	word, taskType, ok := n.cutAsk(subject)
	if kind = controlKind(word); !ok || kind == 0 || kind == core.EventOverdue {
		return 0, "", fmt.Errorf("%w: %q is not %s and cancel, undo, resubmit, resolve or extend, and perhaps a type", ErrSubject, Short(subject), n.get().ask)
	}
	return kind, taskType, nil
}

// parseNumber accepts what strconv.AppendInt writes of a number that is not
// negative: no sign, no leading zero.
func parseNumber[S ~string | ~[]byte](s S) (int64, bool) {
	if len(s) == 0 || len(s) > 19 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return n, n >= 0
}

// PartitionOf is the partition of a task id among so many: FNV-1a of 32 bits,
// as the server's own partition() transform, which serves the plain door.
func PartitionOf(id string, partitions int) int {
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

// safeType keeps a type from the plain door, which nobody has checked, from
// breaking a subject.
func safeType(taskType string) string {
	if core.CheckName("type", taskType) != nil {
		return noType
	}
	return taskType
}

// short keeps a stranger's subject from filling the log.
func Short(s string) string {
	const most = 128
	return core.ShortText(s, most)
}

// ConsumerAlerts is the durable consumer that supervisors share: it holds what
// ended in error and was not yet told to a person.
const ConsumerAlerts = "alerts"

// KeyBeat is in the bucket of leases, and ends like one when no node lives.
const KeyBeat = "database"

// evidenceKey is where evidence goes: what a former owner knew when it lost its
// partition does not replace what its successor records.
func EvidenceKey(partition int, former bool) string {
	key := strconv.Itoa(partition)
	if former {
		key += ".former"
	}
	return key
}

// EvidenceSubject is where evidence of a partition is put, without waiting: see EvidenceKey.
func (n Names) EvidenceSubject(partition int, former bool) string {
	return "$KV." + n.BucketPartitions() + "." + EvidenceKey(partition, former)
}

// BucketPattern selects all keys of a bucket.
func BucketPattern(bucket string) string { return "$KV." + bucket + ".>" }

// BucketStream is the name of the stream below a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }
