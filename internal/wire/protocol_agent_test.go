package wire

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/submit"
	"duly.dev/duly/internal/wire/wiretest"
)

// goldenDo is the command that most golden messages are about.
func goldenDo() core.Command {
	return core.Command{
		Agent: "payment.charge", Partition: PartitionOf("order-17", goldenPartitions), Number: 41, Seq: 5, Commit: 7,
		Task: "order-17", Type: "order", Step: "charge", Attempt: 1, CompleteBy: goldenAt(2), Left: 2 * time.Second,
		Input: []byte(`{"Cents":1999}`), Results: []core.StepResult{{Step: "credit", Result: []byte(`{"Points":700}`)}},
	}
}

func goldenUndo() core.Command {
	c := goldenDo()
	c.Undo, c.Seq, c.Commit, c.CompleteBy, c.Left, c.Result = true, 8, 9, goldenAt(12), 10*time.Second, []byte(`{"Number":"r-1"}`)
	return c
}

// commandMessage is a command as it comes to an agent.
func commandMessage(t *testing.T, name, what, rule string, c core.Command) wiretest.Message {
	return wiretest.Message{
		Name: name, What: what, Rule: rule, From: "duly", Subject: Names{}.CommandSubject(c.Agent, c.Undo),
		Reply: goldenSigner(t).ReplySubject(Names{}, &c), Headers: headersOf((&submit.Form{Trace: c.Trace}).Header()), Payload: AppendCommand(nil, &c),
	}
}

func commandGoldens(t *testing.T) []golden {
	again, traced, unseen, child := goldenDo(), goldenDo(), goldenUndo(), goldenDo()
	again.Attempt, again.Seq, again.Commit, again.CompleteBy = 2, 7, 8, goldenAt(4)
	traced.Trace = goldenTrace
	unseen.Result = nil
	child.Task = core.ChildID("order-17", "parcels", 2, 0, true)
	reads := func(name, what, rule string, c core.Command) golden {
		return golden{commandMessage(t, name, what, rule, c), func(_ Header, data []byte) error {
			got, err := DecodeCommand(data)
			return same(got, err, bare(c))
		}}
	}
	newer := reads("do-newer", "a do of a newer scheduler, with a member that is not known", "P12", goldenDo())
	newer.Payload = append([]byte(`{"colour":{"deep":["}"]},`), newer.Payload[1:]...)
	newer.Headers = map[string]string{"Duly-Colour": "red"}
	all := []golden{
		reads("do", "a do", "P1", goldenDo()),
		reads("do-again", "the same do, tried again: its reply subject is another, its key is the same", "P2", again),
		reads("do-traced", "a do of a task with a trace", "P12", traced),
		newer,
		reads("do-child", "a do of a child task, whose id is no name", "P1", child),
		reads("undo", "an undo of a do that answered", "P5", goldenUndo()),
		reads("undo-unseen", "an undo of a do that did not answer", "P7", unseen),
	}
	for _, x := range []struct {
		name, what, text string
		code, or         int
	}{
		{"do-garbage", "no JSON", `{"v":1,`, 400, core.CodeUnable},
		{"do-list", "JSON that is no object", `[1]`, 400, core.CodeUnable},
		{"do-no-task", "a do without a task", strings.Replace(string(all[0].Payload), `"task":"order-17",`, ``, 1), 400, core.CodeUnable},
		{"do-bad-key", "a key that is none", strings.Replace(string(all[0].Payload), `/charge/0`, ``, 1), 400, core.CodeUnable},
		{"do-version", "a do of another version, which a newer instance may know", strings.Replace(string(all[0].Payload), `"v":1`, `"v":2`, 1), core.CodeUnable, 0},
	} {
		m := all[0].Message
		m.Name, m.What, m.Rule, m.Payload, m.Text = x.name, x.what, "P10", nil, x.text
		m.Refused = &wiretest.Refused{Code: x.code, Or: x.or}
		all = append(all, golden{m, func(_ Header, data []byte) error {
			_, err := DecodeCommand(data)
			return undecodable(err)
		}})
	}
	return all
}

// bare is a command less what subjects and headers carry.
func bare(c core.Command) core.Command {
	c.Agent, c.Undo, c.Trace, c.Partition, c.Number, c.Seq, c.Commit = "", false, "", 0, 0, 0, 0
	return c
}

// replyMeans is what a reply means, in the files.
type replyMeans struct {
	Code     int             `json:"code"`
	Error    string          `json:"error,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Instance string          `json:"instance,omitempty"`
}

func meansOf(t *testing.T, r core.Reply) json.RawMessage {
	return plainJSON(t, replyMeans{r.Code, r.Error, r.Result, r.From})
}

// goldenResultMax is the result_max of the step of the golden replies.
const goldenResultMax = 40

func replyGoldens(t *testing.T) []golden {
	signer := goldenSigner(t)
	one := func(name, what, rule, answers string, c core.Command, h Header, data string, want core.Reply) golden {
		want.Partition, want.Number, want.Seq, want.Token = c.Partition, c.Number, c.Seq, signer.Token(c.Partition, c.Number, c.Seq, c.Commit, c.Copy)
		m := wiretest.Message{Name: name, What: what, Rule: rule, From: "agent", Answers: answers, Subject: signer.ReplySubject(Names{}, &c), Headers: headersOf(h), Means: meansOf(t, want)}
		switch {
		case !utf8.ValidString(data):
			m.Hex = hex.EncodeToString([]byte(data))
		case json.Valid([]byte(data)):
			m.Payload = []byte(data)
		default:
			m.Text = data
		}
		return golden{m, func(h Header, data []byte) error {
			got, err := Names{}.DecodeReply(m.Subject, h, data, goldenResultMax)
			if err == nil && !signer.Genuine(&got, c.Commit) {
				err = fmt.Errorf("%s has not the token of the command", m.Subject)
			}
			return same(got, err, want)
		}}
	}
	failed := func(name, what, rule, answers string, c core.Command, code int, text string) golden {
		h, _ := EncodeReply(&core.Reply{Code: code, Error: text})
		return one(name, what, rule, answers, c, h, "", core.Reply{Code: code, Error: text})
	}
	do, undo := goldenDo(), goldenUndo()
	result := string(undo.Result)
	wrong := func(code string) Header { return Header{HeaderError: {"boom"}, HeaderErrorCode: {code}} }
	return []golden{
		one("reply", "the result of a do", "P2, P13", "do", do, nil, result, core.Reply{Result: undo.Result}),
		one("reply-instance", "the same, with the name of the instance", "P13", "do", do, Header{HeaderInstance: {"till-2"}}, result, core.Reply{Result: undo.Result, From: "till-2"}),
		one("reply-empty", "a do without a result, which is null", "P13", "do", do, nil, "", core.Reply{Result: null}),
		one("reply-undone", "an undo that has undone, or found nothing to undo", "P5, P6, P7", "undo", undo, nil, "", core.Reply{Result: null}),
		failed("reply-refused", "a do that is refused for good: there is no effect", "P10", "do", do, core.CodeRefused, "no money"),
		failed("reply-gone", "a do whose key was undone", "P4", "do", do, core.CodeGone, "gone: this key was undone"),
		failed("reply-in-progress", "a do while another of its key is at work", "P3", "do", do, core.CodeTooEarly, "in progress: this key is at work elsewhere"),
		failed("reply-undo-in-progress", "an undo while its do is at work", "P8", "undo", undo, core.CodeTooEarly, "in progress: this key is at work elsewhere"),
		failed("reply-full", "an agent that can take no more", "P3", "do", do, core.CodeTooMany, "full"),
		failed("reply-failed", "a do that failed, perhaps with an effect", "P9", "do", do, core.CodeAgentError, "the bank did not answer"),
		failed("reply-failed-for-good", "a do that would fail again, perhaps with an effect", "P9", "do", do, core.CodeFailed, "panic: no such card"),
		failed("reply-stopping", "an agent that stops", "", "do", do, core.CodeUnavailable, "the agent stops"),
		one("reply-no-json", "a result that is no JSON, and what it counts as", "P9", "do", do, nil, "hello", core.Reply{Code: core.CodeFailed, Error: `bad_result: not JSON: "hello"`}),
		one("reply-no-utf8", "a result with bytes that are not UTF-8, and what it counts as", "P9", "do", do, nil, "\"caf\xe9\"",
			core.Reply{Code: core.CodeFailed, Error: "bad_result: result is not UTF-8: byte 5"}),
		one("reply-nul", "a result with a NUL, and what it counts as", "P9", "do", do, nil, `"a\u0000b"`,
			core.Reply{Code: core.CodeFailed, Error: `bad_result: result holds a NUL (\u0000) at byte 3`}),
		one("reply-large", fmt.Sprintf("a result that is larger than a result_max of %d, and what it counts as", goldenResultMax), "P9", "do", do, nil,
			`"`+strings.Repeat("x", goldenResultMax)+`"`, core.Reply{Code: core.CodeFailed, Error: "bad_result: 42 bytes, the limit is 40"}),
		one("reply-code-word", "a code that is no number, and what it counts as", "", "do", do, wrong("twelve"), "", core.Reply{Code: core.CodeAgentError, Error: "boom"}),
		one("reply-code-200", "a code that is no error's, and what it counts as", "", "do", do, wrong("200"), "", core.Reply{Code: core.CodeAgentError, Error: "boom"}),
		one("reply-code-case", "an error whose headers some library has written in lower case", "", "do", do, Header{"nats-service-error": {"no money"}, "nats-service-error-code": {"422"}}, "", core.Reply{Code: 422, Error: "no money"}),
		one("reply-code-alone", "a code without words", "", "do", do, Header{HeaderErrorCode: {"409"}}, "", core.Reply{Code: 409}),
	}
}

// batchRef is the fence of one record of a batch, in the files.
type batchRef struct {
	Partition int             `json:"partition"`
	Number    int64           `json:"number"`
	Seq       int64           `json:"seq"`
	Token     string          `json:"token"`
	Trace     string          `json:"traceparent,omitempty"`
	Command   json.RawMessage `json:"command,omitempty"`
	Reply     *replyMeans     `json:"reply,omitempty"`
}

func refOf(c *core.Command, signer *Signer) batchRef {
	token := signer.Token(c.Partition, c.Number, c.Seq, c.Commit, c.Copy)
	return batchRef{Partition: c.Partition, Number: c.Number, Seq: c.Seq, Token: hex.EncodeToString(token[:]), Trace: c.Trace}
}

func batchGoldens(t *testing.T) []golden {
	signer := goldenSigner(t)
	first, second := goldenUndo(), goldenUndo()
	first.Trace = goldenTrace
	second.Task, second.Number, second.Result, second.Results, second.Partition = "order-18", 12, nil, nil, PartitionOf("order-18", goldenPartitions)
	second.Copy = 258 // of a step that waits for its agent
	commands := []core.Command{first, second}
	replies := []core.Reply{{Result: []byte(`null`)}, {Code: core.CodeTooEarly, Error: "in progress"}}
	sent, answered := []byte{BatchVersion}, []byte{BatchVersion}
	var sentMeans, answeredMeans []batchRef
	for i := range commands {
		c, r := &commands[i], &replies[i]
		token := signer.Token(c.Partition, c.Number, c.Seq, c.Commit, c.Copy)
		r.Partition, r.Number, r.Seq, r.Token, r.From = c.Partition, c.Number, c.Seq, token, "till-2"
		sent = AppendBatchCommand(sent, c, signer)
		answered = AppendBatchReply(answered, c, token, r)
		ref := refOf(c, signer)
		ref.Command = AppendCommand(nil, c)
		sentMeans = append(sentMeans, ref)
		ref = refOf(c, signer)
		ref.Trace, ref.Reply = "", &replyMeans{r.Code, r.Error, r.Result, r.From}
		answeredMeans = append(answeredMeans, ref)
	}
	reply := signer.BatchReplySubject(Names{}.BatchReplyPrefix("k3Vq"), first.Agent, 12)
	names := Names{}
	return []golden{
		{wiretest.Message{Name: "batch-undo", What: "two undos in a message, for an agent that announces batches", From: "duly", Subject: names.BatchSubject(first.Agent, true),
			Reply: reply, Hex: hex.EncodeToString(sent), Means: plainJSON(t, sentMeans)}, func(_ Header, data []byte) error {
			return sameBatch(data, commands, signer)
		}},
		{wiretest.Message{Name: "batch-reply", What: "the answers to both, from one instance", Rule: "P13", From: "agent", Answers: "batch-undo", Subject: BatchAnswerSubject(reply),
			Headers: headersOf(Header{HeaderInstance: {"till-2"}}), Hex: hex.EncodeToString(answered), Means: plainJSON(t, answeredMeans)}, func(h Header, data []byte) error {
			var got []core.Reply
			err := DecodeBatchReplies(data, h.Get(HeaderInstance), goldenResultMax, func(r core.Reply) { got = append(got, r) })
			return same(got, err, replies)
		}},
	}
}

// sameBatch wants a batch to have these commands, each with its token.
func sameBatch(data []byte, want []core.Command, signer *Signer) error {
	var got []core.Command
	var bad error
	err := DecodeBatchCommands(data, func(c core.Command, token core.Token) {
		is := &want[min(len(got), len(want)-1)]
		if token != signer.Token(is.Partition, is.Number, is.Seq, is.Commit, is.Copy) {
			bad = fmt.Errorf("command %d has the token %v", len(got), token)
		}
		c.Agent, c.Undo, c.Commit, c.Copy = is.Agent, is.Undo, is.Commit, is.Copy
		got = append(got, c)
	})
	if err == nil {
		err = bad
	}
	return same(got, err, want)
}

func probeGoldens(t *testing.T) []golden {
	question := goldenDo()
	question.CompleteBy, question.Left = goldenAt(7), 5*time.Second
	asked := commandMessage(t, "probe", "what became of a do that did not answer?", "P15", question)
	asked.Subject, asked.Reply = Names{}.SubjectProbe(question.Agent), goldenInbox
	all := []golden{{asked, func(_ Header, data []byte) error {
		got, err := DecodeCommand(data)
		return same(got, err, bare(question))
	}}}
	answer := wiretest.Message{Rule: "P15", From: "agent", Answers: "probe", Subject: goldenInbox}
	for _, x := range []struct {
		name, what string
		probe      core.Probe
	}{
		{"probe-done", "the effect stands, with the result of its do", core.Probe{Outcome: core.ProbeDone, Result: goldenUndo().Result}},
		{"probe-absent", "there is no effect, and none is being made", core.Probe{Outcome: core.ProbeAbsent}},
		{"probe-in-progress", "a do or an undo is at work", core.Probe{Outcome: core.ProbeInProgress}},
	} {
		m := answer
		m.Name, m.What, m.Payload = x.name, x.what, AppendProbe(nil, &x.probe)
		all = append(all, golden{m, func(_ Header, data []byte) error {
			got, err := DecodeProbe(data, goldenResultMax)
			return same(got, err, x.probe)
		}})
	}
	unknown, wrong := answer, answer
	unknown.Name, unknown.What = "probe-not-known", "the agent cannot tell"
	unknown.Headers = map[string]string{HeaderError: "nothing is known of the key", HeaderErrorCode: "500"}
	wrong.Name, wrong.What, wrong.Payload = "probe-wrong", "an outcome that there is not: as if nothing was answered", []byte(`{"v":1,"outcome":"maybe"}`)
	return append(all, golden{Message: unknown}, golden{wrong, func(_ Header, data []byte) error {
		_, err := DecodeProbe(data, goldenResultMax)
		return undecodable(err)
	}})
}

func bookGoldens(t *testing.T) []golden {
	agent := goldenDo().Agent
	message := func(name, what string, data []byte, err error) wiretest.Message {
		if err != nil {
			t.Fatal(err)
		}
		return wiretest.Message{Name: name, What: what, From: "duly", Subject: Names{}.SubjectBooks(agent), Reply: goldenInbox, Payload: data}
	}
	since := BooksQuestion{V: Version, Since: goldenAt(0).Time(), Limit: 500}
	keys := BooksQuestion{V: Version, Keys: []string{"order-17/charge/0"}}
	page := BooksAnswer{V: Version, Effects: []BooksEffect{{Key: "order-17/charge/0", Times: 1, At: goldenAt(1).Time()}}}
	question := func(name, what string, q BooksQuestion) golden {
		data, err := EncodeBooksQuestion(q)
		return golden{message(name, what, data, err), func(_ Header, data []byte) error {
			got, err := DecodeBooksQuestion(data)
			return same(got, err, q)
		}}
	}
	data, err := EncodeBooksAnswer(page)
	answer := message("books-answer", "a page of effects that stand, the last", data, err)
	answer.From, answer.Answers, answer.Subject, answer.Reply = "agent", "books", goldenInbox, ""
	return []golden{
		question("books", "which effects does the service have since a time?", since),
		question("books-keys", "which of these keys have an effect?", keys),
		{answer, func(_ Header, data []byte) error {
			got, err := DecodeBooksAnswer(data)
			if err == nil && !reflect.DeepEqual(got, page) {
				err = fmt.Errorf("decoded %+v, want %+v", got, page)
			}
			return err
		}},
	}
}
