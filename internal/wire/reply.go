package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// null is the result of an agent that answers with nothing.
var null = []byte("null")

// EncodeReply returns the header and the payload of an agent's answer. The
// header of a success is nil.
func EncodeReply(r *core.Reply) (Header, []byte) {
	if r.Code == 0 {
		return nil, r.Result
	}
	text := CutText(r.Error)
	if text == "" {
		text = "error " + strconv.Itoa(r.Code)
	}
	return Header{HeaderError: {text}, HeaderErrorCode: {strconv.Itoa(r.Code)}}, nil
}

// DecodeReply reads an agent's answer; its subject says to which command. The
// result is part of the message. A result that is not JSON or larger than
// resultMax is a failed attempt with core.CodeFailed. Errors wrap errSubject.
func (n Names) DecodeReply(subject string, header Header, data []byte, resultMax int) (core.Reply, error) {
	r, ok := n.EmptyReply(subject)
	if !ok {
		_, _, _, err := n.ParseReply(subject)
		return core.Reply{}, err
	}
	if len(header) > 0 {
		r.From = core.CleanActor(header.Get(HeaderInstance))
		if code, text, failed := header.Failure(); failed {
			r.Code, r.Error = replyCode(code), CutText(text)
			return r, nil
		}
	}
	checkResult(&r, data, resultMax)
	return r, nil
}

// Failure is the error that an answer's headers say. Their names count in any case, which some libraries change: what failed
// must not pass for a success without a result.
func (h Header) Failure() (code, text string, failed bool) {
	for name, values := range h {
		switch {
		case len(values) == 0 || len(name) < len(HeaderError):
		case strings.EqualFold(name, HeaderErrorCode):
			code = values[0]
		case strings.EqualFold(name, HeaderError):
			text = values[0]
		}
	}
	return code, text, code != "" || text != ""
}

// EmptyReply is a reply without content to the command that a reply subject belongs to: what
// is known when no agent listens. ok is false for another subject.
func (n Names) EmptyReply(subject string) (r core.Reply, ok bool) {
	partition, number, seq, rest, ok := n.cutReply(subject)
	return core.Reply{Partition: partition, Number: number, Seq: seq, Token: tokenOf(rest)}, ok
}

// checkResult sets the result of a reply, or its error if data cannot be one.
func checkResult(r *core.Reply, data []byte, resultMax int) {
	switch {
	case len(data) > resultMax:
		r.Code, r.Error = core.CodeFailed, fmt.Sprintf("bad_result: %d bytes, the limit is %d", len(data), resultMax)
		return
	case len(data) == 0:
		r.Result = null
		return
	}
	switch err := quickjson.Check("result", data); {
	case err == nil:
		r.Result = data
	case isText(err):
		r.Code, r.Error = core.CodeFailed, "bad_result: "+err.Error()
	default:
		r.Code, r.Error = core.CodeFailed, "bad_result: not JSON: "+Quote(data)
	}
}

// isText reports whether a payload is JSON that not every store holds.
func isText(err error) bool {
	_, is := errors.AsType[*quickjson.TextError](err)
	return is
}

// replyCode reads a code; one that is no HTTP error is core.CodeAgentError.
func replyCode(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return core.CodeAgentError
	}
	return codeIn(n)
}

func codeIn(n int) int {
	if n < 400 || n > 599 {
		return core.CodeAgentError
	}
	return n
}
