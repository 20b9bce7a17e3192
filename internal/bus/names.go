package bus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// Version is the version of every encoding on the wire.
const Version = 1

// The streams.
const (
	StreamTasks   = "DULY_TASKS"   // submissions, by partition
	StreamControl = "DULY_CONTROL" // requests about tasks that exist, by partition
	StreamEvents  = "DULY_EVENTS"  // how tasks ended
	StreamDead    = "DULY_DEAD"    // what could not be decoded
)

// BucketNodes holds the leases: a key per live node and one for the leader.
const BucketNodes = "DULY_NODES"

// BucketKeys holds what schedulers share and agents must not read.
const BucketKeys = "DULY_KEYS"

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
	HeaderCompleteBy = "Duly-Complete-By" // RFC 3339 or a duration
	HeaderReplyTo    = "Duly-Reply-To"    // the submitter's private status subject
	HeaderTrace      = "traceparent"      // W3C trace context
	HeaderCause      = "Duly-Cause"       // of a dead letter: why
	HeaderSubject    = "Duly-Subject"     // of a dead letter: where it was
	HeaderError      = "Nats-Service-Error"
	HeaderErrorCode  = "Nats-Service-Error-Code"
)

// Keys of an agent's metadata in NATS's service discovery.
const (
	metaAgent     = "duly_agent" // its name
	metaAgentWire = "duly_wire"  // version of the wire
	metaBatch     = "duly_batch" // version of the batches it takes; absent: none
)

// serviceName is an agent's name in NATS's service discovery, which knows no
// dots.
func serviceName(agent string) string { return "duly-" + strings.ReplaceAll(agent, ".", "_") }

// Subjects without a variable part, and patterns to subscribe to.
const (
	SubjectPlansApply   = "duly.plans.apply"
	SubjectPlansChanged = "duly.plans.changed"

	patternSubmit  = "duly.submit.*.*"
	patternIn      = "duly.in.*.*"
	patternPack    = "duly.tasks.*.pack"
	patternControl = "duly.control.*"
	patternEvents  = "duly.events.*.*"
	patternDead    = "duly.dead.*"
	patternAsk     = "duly.ask.*"
)

// noType stands in subjects for a task type outside its alphabet.
const noType = "_"

// ErrSubject is wrapped by every error about a subject that cannot be parsed.
var ErrSubject = errors.New("subject refused")

// SubmitSubject is the fast door of one task.
func SubmitSubject(taskType, id string) string { return "duly.submit." + taskType + "." + id }

// InSubject is the plain door of one task.
func InSubject(taskType, id string) string { return "duly.in." + taskType + "." + id }

// PackSubject is where packs of submissions of a partition go.
func PackSubject(partition int) string { return numbered("duly.tasks.", partition, ".pack") }

// TasksPattern selects the submissions of a partition, from both doors.
func TasksPattern(partition int) string { return numbered("duly.tasks.", partition, ".>") }

// CommandSubject is where an agent listens for do or undo.
func CommandSubject(agent string, undo bool) string {
	if undo {
		return "duly.undo." + agent
	}
	return "duly.do." + agent
}

// BatchSubject is where an agent of our own runtime listens for several commands
// in one message.
func BatchSubject(agent string, undo bool) string {
	if undo {
		return "duly.batch.undo." + agent
	}
	return "duly.batch.do." + agent
}

// batchReplyPrefix begins the subjects that one sender hears batches of replies
// on.
func batchReplyPrefix(token string) string { return "duly.batch.reply." + token + "." }

// isBatchReply reports whether a subject is one that batches of replies go to.
func isBatchReply(subject string) bool {
	rest, ok := strings.CutPrefix(subject, "duly.batch.reply.")
	token, number, two := strings.Cut(rest, ".")
	return ok && two && token != "" && number != "" && !strings.ContainsAny(rest, "*> ") && !strings.Contains(number, ".")
}

// ReplySubject is where the answer to one command goes; it is the fence of the
// reply.
func ReplySubject(partition int, number, seq int64) string {
	var a [64]byte
	return string(appendReply(a[:0], partition, number, seq))
}

func appendReply(b []byte, partition int, number, seq int64) []byte {
	b = append(b, "duly.reply."...)
	b = strconv.AppendInt(b, int64(partition), 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, number, 10)
	b = append(b, '.')
	return strconv.AppendInt(b, seq, 10)
}

// ReplyPattern selects the replies to a partition's commands. It leaves room
// for further tokens after the numbers.
func ReplyPattern(partition int) string { return numbered("duly.reply.", partition, ".>") }

// ControlSubject is where control messages of a partition go.
func ControlSubject(partition int) string { return numbered("duly.control.", partition, "") }

// EventSubject is where tasks of a type that came to that state are told:
// processed in packs, the others alone while they are rare.
func EventSubject(taskType, state string) string {
	return "duly.events." + safeType(taskType) + "." + state
}

// LiveSubject is where a task's statuses are published for whoever listens.
func LiveSubject(taskType, id string) string { return "duly.live." + taskType + "." + id }

// DeadSubject is where dead letters of a stream go.
func DeadSubject(stream string) string { return "duly.dead." + stream }

// AskSubject is where a person or a client asks something about a task; the
// kind is a word of ControlKinds.
func AskSubject(kind string) string { return "duly.ask." + kind }

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
func ParseSubmit(subject string) (taskType, id string, err error) {
	rest, ok := strings.CutPrefix(subject, "duly.submit.")
	if !ok {
		return "", "", fmt.Errorf("%w: %q is not duly.submit.<type>.<id>", ErrSubject, short(subject))
	}
	return parseTask(rest)
}

// ParseIn takes the subject of the plain door apart: as it was published, or as
// the stream's transform stored it. The names are not checked.
func ParseIn(subject string) (partition int, taskType, id string, err error) {
	if rest, ok := strings.CutPrefix(subject, "duly.tasks."); ok {
		number, rest, _ := strings.Cut(rest, ".")
		p, ok := parseNumber(number)
		taskType, id, _ = strings.Cut(rest, ".")
		if ok && p < 1<<31 && taskType != "" && id != "" && !strings.Contains(id, ".") {
			return int(p), taskType, id, nil
		}
	}
	return 0, "", "", fmt.Errorf("%w: %q is not duly.tasks.<partition>.<type>.<id>", ErrSubject, short(subject))
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
func ParsePack(subject string) (partition int, ok bool) {
	rest, ok := strings.CutPrefix(subject, "duly.tasks.")
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
func ParseReply(subject string) (partition int, number, seq int64, err error) {
	partition, number, seq, _, ok := cutReply(subject)
	if !ok {
		return 0, 0, 0, fmt.Errorf("%w: %q is not duly.reply.<partition>.<number>.<seq>", ErrSubject, short(subject))
	}
	return partition, number, seq, nil
}

// cutReply does it without an error's text; rest is what follows the third number
// and its dot.
func cutReply(subject string) (partition int, number, seq int64, rest string, ok bool) {
	rest, ok = strings.CutPrefix(subject, "duly.reply.")
	var n [3]int64
	for i := 0; ok && i < len(n); i++ {
		var token string
		token, rest, _ = strings.Cut(rest, ".")
		n[i], ok = parseNumber(token)
	}
	if !ok || n[0] > 1<<31-1 {
		return 0, 0, 0, "", false
	}
	return int(n[0]), n[1], n[2], rest, true
}

// ParseAsk returns the kind of a request of duly.ask.<kind>.
func ParseAsk(subject string) (kind core.EventKind, err error) {
	word, ok := strings.CutPrefix(subject, "duly.ask.")
	if kind = controlKind(word); !ok || kind == 0 || kind == core.EventOverdue {
		return 0, fmt.Errorf("%w: %q is not duly.ask. and cancel, undo, resubmit, resolve or extend", ErrSubject, short(subject))
	}
	return kind, nil
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
func short(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
