package wire

import (
	"duly.dev/duly/internal/core"
)

// What the default namespace makes of each name, by the short words that tests
// use: the golden ones pin what programs out there rely on.
var (
	StreamTasks         = Names{}.StreamTasks()
	StreamControl       = Names{}.StreamControl()
	StreamEvents        = Names{}.StreamEvents()
	StreamDead          = Names{}.StreamDead()
	StreamAlerts        = Names{}.StreamAlerts()
	BucketNodes         = Names{}.BucketNodes()
	BucketKeys          = Names{}.BucketKeys()
	BucketPartitions    = Names{}.BucketPartitions()
	SubjectPlansApply   = Names{}.SubjectPlansApply()
	SubjectPlansChanged = Names{}.SubjectPlansChanged()
)

func SubmitSubject(taskType, id string) string { return Names{}.SubmitSubject(taskType, id) }
func InSubject(taskType, id string) string     { return Names{}.InSubject(taskType, id) }
func PackSubject(partition int) string         { return Names{}.PackSubject(partition) }
func TasksPattern(partition int) string        { return Names{}.TasksPattern(partition) }
func ReplyPattern(partition int) string        { return Names{}.ReplyPattern(partition) }
func ControlSubject(partition int) string      { return Names{}.ControlSubject(partition) }
func EventSubject(taskType, state string) string {
	return Names{}.EventSubject(taskType, state)
}
func LiveSubject(taskType, id string) string { return Names{}.LiveSubject(taskType, id) }
func DeadSubject(stream string) string       { return Names{}.DeadSubject(stream) }
func AskSubject(kind string) string          { return Names{}.AskSubject(kind) }
func AskTypeSubject(kind, of string) string  { return Names{}.AskTypeSubject(kind, of) }
func CommandSubject(agent string, undo bool) string {
	return Names{}.CommandSubject(agent, undo)
}
func BatchSubject(agent string, undo bool) string { return Names{}.BatchSubject(agent, undo) }

func ReplySubject(partition int, number, seq int64) string {
	return Names{}.ReplySubject(partition, number, seq)
}

func ParseSubmit(subject string) (taskType, id string, err error) {
	return Names{}.ParseSubmit(subject)
}

func ParseIn(subject string) (partition int, taskType, id string, err error) {
	return Names{}.ParseIn(subject)
}

func ParsePack(subject string) (partition int, ok bool) { return Names{}.ParsePack(subject) }

func ParseReply(subject string) (partition int, number, seq int64, err error) {
	return Names{}.ParseReply(subject)
}

func ParseAsk(subject string) (core.EventKind, string, error) { return Names{}.ParseAsk(subject) }

func DecodeReply(subject string, header Header, data []byte, resultMax int) (core.Reply, error) {
	return Names{}.DecodeReply(subject, header, data, resultMax)
}

func CheckReplyTo(subject string, prefixes []string) error {
	return Names{}.CheckReplyTo(subject, prefixes)
}

func safeSubject(subject string) error { return Names{}.checkTarget(subject) }
func mayAnswer(reply string) bool      { return Names{}.MayAnswer(reply, nil) }

func readAsk(subject string, data []byte) (core.Control, error) {
	return Names{}.DecodeAsk(subject, data)
}
