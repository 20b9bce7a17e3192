package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
)

// ParseSubmit reads a subject of the request endpoint and checks the names in it.
func (n Names) ParseSubmit(subject string) (taskType, id string, err error) {
	rest, ok := strings.CutPrefix(subject, n.get().submit)
	if !ok {
		return "", "", fmt.Errorf("%w: %q is not %s<type>.<id>", errSubject, Short(subject), n.get().submit)
	}
	return parseTask(rest)
}

// ParseIn reads the subject of a submission from the stream endpoint, as the stream's
// transform stored it. The names are not checked.
func (n Names) ParseIn(subject string) (partition int, taskType, id string, err error) {
	if rest, ok := strings.CutPrefix(subject, n.get().tasks); ok {
		number, rest, _ := strings.Cut(rest, ".")
		p, ok := parseNumber(number)
		taskType, id, _ = strings.Cut(rest, ".")
		if ok && p < 1<<31 && taskType != "" && id != "" && !strings.Contains(id, ".") {
			return int(p), taskType, id, nil
		}
	}
	return 0, "", "", fmt.Errorf("%w: %q is not %s<partition>.<type>.<id>", errSubject, Short(subject), n.get().tasks)
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

// ParseReply reads the subject of a reply. Further tokens after the third number are
// allowed.
func (n Names) ParseReply(subject string) (partition int, number, seq int64, err error) {
	partition, number, seq, _, ok := n.cutReply(subject)
	if !ok {
		return 0, 0, 0, fmt.Errorf("%w: %q is not %s<partition>.<number>.<seq>", errSubject, Short(subject), n.get().reply)
	}
	return partition, number, seq, nil
}

// cutReply is ParseReply without the cost of an error; rest is what follows the third
// number and its dot.
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

// ParseAsk returns the kind of a request of duly.ask.<kind> or duly.ask.<kind>.<type>,
// and the type.
func (n Names) ParseAsk(subject string) (kind core.EventKind, taskType string, err error) {
	word, taskType, ok := n.cutAsk(subject)
	if kind = controlKind(word); !ok || kind == 0 || kind == core.EventOverdue {
		return 0, "", fmt.Errorf("%w: %q is not %s and one of %s, and perhaps a type", errSubject, Short(subject), n.get().ask, askWords())
	}
	return kind, taskType, nil
}

// askWords are the words of all requests, for an error.
func askWords() string {
	words := []string{askGet, askList}
	for _, k := range controlKinds {
		if k.kind != core.EventOverdue { // which no one but the supervisor says
			words = append(words, k.word)
		}
	}
	return strings.Join(words, ", ")
}

// cutAsk reads a subject duly.ask.<word> or duly.ask.<word>.<type>; without a type the
// request may be about any.
func (n Names) cutAsk(subject string) (word, taskType string, ok bool) {
	rest, ok := strings.CutPrefix(subject, n.get().ask)
	word, taskType, typed := strings.Cut(rest, ".")
	return word, taskType, ok && (!typed || core.CheckName("type", taskType) == nil)
}

// AsksOfType reports whether a subject of requests names a type. Others are for operators.
func (n Names) AsksOfType(subject string) bool {
	_, taskType, ok := n.cutAsk(subject)
	return ok && taskType != ""
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

// parseNumber accepts what strconv.AppendInt writes of a number that is not
// negative, no sign and no leading zero: one subject, one meaning.
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

// ParseConsumer reads a name that ConsumerName has built; ok is false for any other.
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

// errSubject is wrapped by every error about a subject that cannot be parsed.
var errSubject = errors.New("subject refused")
