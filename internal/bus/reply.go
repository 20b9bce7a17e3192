package bus

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// null is the result of an agent that answers with nothing.
var null = []byte("null")

// EncodeReply returns the header and the payload of an agent's answer. The
// header of a success is nil.
func EncodeReply(r *core.Reply) (nats.Header, []byte) {
	if r.Code == 0 {
		return nil, r.Result
	}
	text := CutText(r.Error)
	if text == "" {
		text = "error " + strconv.Itoa(r.Code)
	}
	return nats.Header{HeaderError: {text}, HeaderErrorCode: {strconv.Itoa(r.Code)}}, nil
}

// DecodeReply reads an agent's answer; its subject says to which command. The
// result is part of the message. A result that is not JSON or larger than
// resultMax is a failed try with core.CodeBadResult. Errors wrap ErrSubject.
func (n Names) DecodeReply(msg *nats.Msg, resultMax int) (core.Reply, error) {
	partition, number, seq, rest, ok := n.cutReply(msg.Subject)
	if !ok {
		_, _, _, err := n.ParseReply(msg.Subject)
		return core.Reply{}, err
	}
	r := core.Reply{Partition: partition, Number: number, Seq: seq, Token: tokenOf(rest)}
	if len(msg.Header) > 0 {
		r.From = core.CleanActor(msg.Header.Get(HeaderInstance))
		text, code := msg.Header.Get(HeaderError), msg.Header.Get(HeaderErrorCode)
		if text != "" || code != "" {
			r.Code, r.Error = replyCode(code), CutText(text)
			return r, nil
		}
	}
	checkResult(&r, msg.Data, resultMax)
	return r, nil
}

// checkResult makes data the result of a reply, or why it is none.
func checkResult(r *core.Reply, data []byte, resultMax int) {
	switch {
	case len(data) > resultMax:
		r.Code, r.Error = core.CodeBadResult, fmt.Sprintf("bad_result: %d bytes, the limit is %d", len(data), resultMax)
	case len(data) == 0:
		r.Result = null
	case !quickjson.Valid(data):
		r.Code, r.Error = core.CodeBadResult, "bad_result: not JSON: "+quoteCut(data)
	default:
		r.Result = data
	}
}

// replyCode reads a code; what is no HTTP error is an error of the agent.
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

// unserved reports whether a message on a reply subject is the server's word
// that nobody listens to the command.
func unserved(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && len(msg.Header) > 0 && msg.Header.Get("Status") == "503"
}

// quoteCut shows the beginning of a payload in an error text.
func quoteCut(b []byte) string {
	const most = 100
	if len(b) > most {
		return fmt.Sprintf("%q…", core.CutText(string(b[:most+1]), most))
	}
	return fmt.Sprintf("%q", b)
}
