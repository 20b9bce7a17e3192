package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire/wiretest"
)

// goldenInput is the input of every golden submission.
const goldenInput = `{"Cents":1999}`

// headerStartAt is a header of submissions: RFC 3339 or a delay.
const headerStartAt = "Duly-Start-At"

// goldenAsk is the token of what the signal step of order-17 asks.
const goldenAsk = "0.5b1f6e0c2d9a47838e61c0f4a7d25b93"

func submitGoldens(t *testing.T) []golden {
	names := Names{}
	stored := names.StreamTasks()
	plain := core.Submission{Type: "order", ID: "order-17", Input: []byte(goldenInput), At: goldenAt(0)}
	labels, err := core.ParseLabels("tenant=acme,tier=gold")
	if err != nil {
		t.Fatal(err)
	}
	full := plain
	full.ID, full.CompleteBy, full.StartAt, full.ReplyTo, full.Trace, full.Labels = "order-18", goldenAt(7200), goldenAt(3600), "_INBOX.shop.status", goldenTrace, labels
	headers := submitHeaders("2h", full.ReplyTo, full.Trace, core.NewestVersion, core.FormatLabels(labels))
	headers[headerStartAt] = []string{"1h"}
	submit := func(name, what, rule string, s core.Submission, h Header) golden {
		return golden{wiretest.Message{Name: name, What: what, Rule: rule, From: "submitter", Subject: names.SubmitSubject(s.Type, s.ID), Reply: goldenInbox,
			Headers: headersOf(h), Payload: s.Input}, readSubmission(names.SubmitSubject(s.Type, s.ID), s)}
	}
	inStream := submit("submit-stream", "a submission at the stream endpoint, which JetStream acknowledges", "Q10", plain, nil)
	inStream.Subject = names.InSubject(plain.Type, plain.ID)
	all := []golden{
		submit("submit", "a submission", "Q1", plain, nil),
		submit("submit-headers", "a submission with every header", "Q1", full, headers),
		inStream,
	}
	for _, x := range []struct {
		name, what, id, input string
		header                Header
		code, errCode         int
	}{
		{"submit-id", "an id that is no name", "order+17", goldenInput, nil, 400, ErrCodeID},
		{"submit-input-json", "an input that is no JSON", "order-20", `{"Cents":`, nil, 400, 7004},
		{"submit-input-nul", "an input with a NUL", "order-20", `"\u0000"`, nil, 400, 7005},
		{"submit-input-twice", "an input in which a name stands twice", "order-20", `{"Cents":1999,"Cents":999900}`, nil, 400, 7005},
		{"submit-complete-by", "a deadline that is neither a time nor a duration", "order-20", goldenInput, Header{HeaderCompleteBy: {"soon"}}, 400, 7007},
		{"submit-complete-by-past", "a deadline that is over", "order-20", goldenInput, Header{HeaderCompleteBy: {"2020-01-01T00:00:00Z"}}, 400, 7008},
		{"submit-start-at", "a begin that is neither a time nor a delay", "order-20", goldenInput, Header{headerStartAt: {"-1h"}}, 400, 7016},
		{"submit-start-at-late", "a begin after the deadline", "order-20", goldenInput, Header{headerStartAt: {"2h"}, HeaderCompleteBy: {"1h"}}, 400, 7018},
		{"submit-reply-to", "a subject for statuses that is Duly's own", "order-20", goldenInput, Header{HeaderReplyTo: {names.CommandSubject("payment.charge", false)}}, 400, 7010},
		{"submit-version", "a plan version that is no number", "order-20", goldenInput, Header{HeaderVersion: {"latest"}}, 400, 7011},
		{"submit-labels", "a label without a value", "order-20", goldenInput, Header{HeaderLabels: {"tenant="}}, 400, 7013},
		{"submit-version-unknown", "a plan version that is not stored", "order-20", goldenInput, Header{HeaderVersion: {"99"}}, 404, 7012},
		{"submit-other-input", "another input under an id that is a task", "order-17", `{"Cents":2000}`, nil, 409, 7042},
	} {
		m := wiretest.Message{Name: x.name, What: x.what, From: "submitter", Subject: names.SubmitSubject("order", x.id), Reply: goldenInbox, Headers: headersOf(x.header),
			Refused: &wiretest.Refused{Code: x.code, ErrCode: x.errCode}}
		if m.Payload = []byte(x.input); !json.Valid(m.Payload) {
			m.Payload, m.Text = nil, x.input
		}
		all = append(all, golden{m, readRefused(names.SubmitSubject("order", x.id), x.id, x.code)})
	}
	all[len(all)-1].Rule = "Q2"
	answer := func(name, what, rule string, a SubmitAnswer) golden {
		return golden{wiretest.Message{Name: name, What: what, Rule: rule, From: "duly", Answers: "submit", Subject: goldenInbox, Payload: AppendAccepted(nil, &a)}, func(_ Header, data []byte) error {
			got, err := DecodeSubmitAnswer(data)
			return same(got, err, a)
		}}
	}
	accepted := SubmitAnswer{Stream: stored, Seq: 17, Task: "order-17", Partition: PartitionOf("order-17", goldenPartitions)}
	warned := accepted
	warned.Warning = "its time is 1s, and tasks of plan order take 1.4s"
	all = append(all, answer("submit-accepted", "it is stored", "Q2", accepted), answer("submit-warned", "it is stored, and will hardly make its deadline", "Q2", warned))
	for _, x := range []struct {
		name, what, rule, answers string
		refused                   RefusedError
	}{
		{"submit-refused", "an input that is no JSON is refused", "Q3", "submit-input-json",
			refusing(400, 7004, "order-20", "input is not JSON: byte 9 of 9: unexpected end of JSON input", 0)},
		{"submit-full", "full: again after retry_ms", "Q3", "submit", refusing(429, 7020, "order-17", "this door is full", 250*time.Millisecond)},
		{"submit-down", "not stored just now: again with the same id", "Q3", "submit", refusing(503, 7030, "order-17", "not stored: the stream is out of reach", time.Second)},
		{"submit-not-known", "not known whether it is stored: again with the same id", "Q3", "submit",
			refusing(504, 7032, "order-17", "unknown whether it was stored, submit again with the same id", 100*time.Millisecond)},
		{"submit-late", "its time is less than its plan takes", "Q3", "submit", refusing(422, 7060, "order-17", "its time is 1s, and tasks of plan order take 1.4s", 0)},
	} {
		all = append(all, refusedAnswer(x.name, x.what, x.rule, x.answers, x.refused, func(data []byte) error {
			_, err := DecodeSubmitAnswer(data)
			return err
		}))
	}
	return all
}

func refusing(code, errCode int, task, text string, retry time.Duration) RefusedError {
	return RefusedError{APIError: APIError{Code: code, ErrCode: errCode, Description: text}, Task: task, Retry: retry}
}

// refusedAnswer is a refusal as Duly answers it, which decode reads.
func refusedAnswer(name, what, rule, answers string, refused RefusedError, decode func([]byte) error) golden {
	return golden{wiretest.Message{Name: name, What: what, Rule: rule, From: "duly", Answers: answers, Subject: goldenInbox, Payload: AppendRefused(nil, &refused)}, func(_ Header, data []byte) error {
		err := decode(data)
		got, ok := errors.AsType[*RefusedError](err)
		if !ok {
			return fmt.Errorf("error %w, want a refusal", err)
		}
		return same(*got, nil, refused)
	}}
}

// readSubmission reads a submission's names as the request endpoint does, and the rest as the owner does at the stream
// endpoint.
func readSubmission(subject string, want core.Submission) func(Header, []byte) error {
	want.Unchecked = true // it is read as the task stream has it
	return func(h Header, data []byte) error {
		taskType, id, err := Names{}.ParseSubmit(subject)
		if err != nil {
			return err
		}
		got, err := decodeTask(taskType, id, h, data)
		if err == nil && len(got.Submissions) != 1 {
			err = fmt.Errorf("refused: %+v", got.Refused)
		}
		if err != nil {
			return err
		}
		return same(got.Submissions[0], nil, want)
	}
}

func decodeTask(taskType, id string, h Header, data []byte) (Decoded, error) {
	partition := PartitionOf(id, goldenPartitions)
	subject := numbered(Names{}.get().tasks, partition, "."+taskType+"."+id)
	return TaskDecoder{Partitions: goldenPartitions}.Decode(subject, h, data, goldenAt(0))
}

// readRefused wants a submission to be refused for its form; what only a store knows, of 404 and 409, is taken here.
func readRefused(subject, id string, code int) func(Header, []byte) error {
	return func(h Header, data []byte) error {
		taskType, _, err := Names{}.ParseSubmit(subject)
		if (err != nil) != (core.CheckName("id", id) != nil) {
			return err
		}
		if err != nil {
			taskType = "order"
		}
		got, err := decodeTask(taskType, id, h, data)
		if err != nil {
			return err
		}
		known := code == 404 || code == 409
		if len(got.Refused) == 0 != known || !known && got.Refused[0].Code != code {
			return fmt.Errorf("decoded %+v, want a refusal with %d", got, code)
		}
		return nil
	}
}

func statusGoldens(t *testing.T) []golden {
	names := Names{}
	status := func(name, what, rule, subject string, s core.Status) golden {
		return golden{wiretest.Message{Name: name, What: what, Rule: rule, From: "duly", Subject: subject, Payload: AppendStatus(nil, &s)}, func(_ Header, data []byte) error {
			got, err := DecodeStatus(data)
			return same(got, err, s)
		}}
	}
	const inbox = "_INBOX.shop.status"
	of := func(status, text string, code int, at int64) core.Status {
		return core.Status{ID: "order-17", Type: "order", Status: status, Error: text, Code: code, At: goldenAt(at)}
	}
	const noMoney = "step charge: no money"
	const taken = "id order-17 is a task already, with another input"
	undone := core.Ending{Partition: PartitionOf("order-17", goldenPartitions), EndNumber: 9, ID: "order-17", Type: "order", State: core.StateUndone, Seq: 12, Step: "charge", Error: noMoney,
		Labels: "tenant=acme,tier=gold", CreatedAt: goldenAt(0), At: goldenAt(3)}
	stuck := undone
	stuck.State, stuck.EndNumber, stuck.Labels = core.StateError, 8, ""
	processed := []core.Ending{
		{Partition: PartitionOf("order-18", goldenPartitions), EndNumber: 10, ID: "order-18", Type: "order", State: core.StateProcessed, Seq: 6, CreatedAt: goldenAt(0), At: goldenAt(3)},
		{Partition: PartitionOf("order-19", goldenPartitions), EndNumber: 2, ID: "order-19", Type: "order", State: core.StateProcessed, Seq: 6, CreatedAt: goldenAt(1), At: goldenAt(3)},
	}
	event := func(name, what string, data []byte, want []core.Ending) golden {
		return golden{wiretest.Message{Name: name, What: what, Rule: "Q6, Q7", From: "duly", Subject: names.EventSubject("order", string(want[0].State)), Payload: data}, func(_ Header, data []byte) error {
			got, err := DecodeEndings(data)
			return same(got, err, want)
		}}
	}
	newer := status("status-newer", "a status of a newer node, with a member and a word that are not known", "Q8", inbox, of("resting", "", 0, 0))
	newer.Payload = append(newer.Payload[:len(newer.Payload)-1:len(newer.Payload)-1], `,"colour":"red"}`...)
	steps, watched := stepsGoldens(t)
	return []golden{
		status("status-received", "the task is stored, and will end", "Q5", inbox, of(core.StatusReceived, "", 0, 0)),
		status("status-processed", "the task has ended: all is done", "Q5", inbox, of(string(core.StateProcessed), "", 0, 3)),
		status("status-undone", "the task has ended: nothing is left of it", "Q5", inbox, of(string(core.StateUndone), noMoney, 0, 3)),
		status("status-error", "the task needs an operator", "Q5", inbox, of(string(core.StateError), noMoney, 0, 3)),
		status("status-refused", "the submission is no task", "Q2", inbox, of(core.StatusRefused, taken, 409, 0)),
		newer,
		status("live-undoing", "while it lasts: an undo is in trouble", "Q5", names.LiveSubject("order", "order-17"), of(string(core.StateUndoing), "the undo of step charge is in trouble and goes on", 0, 70)),
		status("event-refused", "a submission that is no task", "Q10", names.EventSubject("order", core.StatusRefused), of(core.StatusRefused, taken, 409, 0)),
		event("event-undone", "a lone end", AppendEnding(nil, &undone), []core.Ending{undone}),
		event("event-error", "a lone end that needs an operator", AppendEnding(nil, &stuck), []core.Ending{stuck}),
		event("events-processed", "several ends of one type and state", appendEvents(nil, processed), processed),
		watched, steps,
		{Message: wiretest.Message{Name: "dead-letter", What: "a message of the task stream that could not be read", From: "duly", Subject: names.DeadSubject(names.StreamTasks()),
			Headers: map[string]string{HeaderCause: "message cannot be decoded: pack has version 9, want 1 to 4", HeaderSubject: names.PackSubject(3)}, Hex: "09"}},
	}
}

// stepsGoldens are the wish to hear of steps, and what is heard then.
func stepsGoldens(t *testing.T) (steps, watched golden) {
	want := []StepEvent{{Partition: PartitionOf("order-17", goldenPartitions), ID: "order-17", What: "step_passed", State: core.StateProcessing, Seq: 3, Step: "credit", Attempt: 1, At: goldenAt(1)}}
	data, err := EncodeSteps("order", want, 0)
	if err != nil {
		t.Fatal(err)
	}
	wish := Wanted{Type: "order", Label: "tenant=acme"}
	wished, err := EncodeWanted(wish)
	if err != nil {
		t.Fatal(err)
	}
	steps = golden{wiretest.Message{Name: "steps", What: "steps of tasks of a type, while someone watches", From: "duly", Subject: Names{}.StepsSubject("order"), Payload: data}, func(_ Header, data []byte) error {
		taskType, got, lost, err := DecodeSteps(data)
		if err == nil && (taskType != "order" || lost != 0) {
			err = fmt.Errorf("type %q, lost %d", taskType, lost)
		}
		return same(got, err, want)
	}}
	watched = golden{wiretest.Message{Name: "watched", What: "what someone watches: said again and again", From: "submitter", Subject: Names{}.SubjectWatched(), Payload: wished}, func(_ Header, data []byte) error {
		got, err := DecodeWanted(data)
		return same(got, err, wish)
	}}
	return steps, watched
}

func askGoldens(*testing.T) []golden {
	names := Names{}
	ask := func(name, what string, c core.Control) golden {
		c.ID, c.Type, c.Actor = "order-17", "order", "desk"
		subject := names.AskTypeSubject(ControlWord(c.Kind), c.Type)
		return golden{wiretest.Message{Name: name, What: what, From: "submitter", Subject: subject, Reply: goldenInbox, Payload: AppendControl(nil, &c)}, func(_ Header, data []byte) error {
			got, err := names.DecodeAsk(subject, data)
			return same(got, err, c)
		}}
	}
	wrong := func(name, what, payload string) golden {
		subject := names.AskTypeSubject("cancel", "order")
		return golden{wiretest.Message{Name: name, What: what, From: "submitter", Subject: subject, Reply: goldenInbox, Payload: []byte(payload), Refused: &wiretest.Refused{Code: CodeBadRequest, ErrCode: ErrCodeBody}}, func(_ Header, data []byte) error {
			if c, err := names.DecodeAsk(subject, data); err == nil {
				return fmt.Errorf("decoded %+v", c)
			}
			return nil
		}}
	}
	const reason = "the customer has called"
	accepted := SubmitAnswer{Stream: names.StreamControl(), Seq: 23, Task: "order-17", Partition: PartitionOf("order-17", goldenPartitions), State: "processing",
		Outcome: "asked: what it did will be undone, unless its last step finishes first"}
	decode := func(data []byte) error {
		_, err := DecodeSubmitAnswer(data)
		return err
	}
	return []golden{
		ask("ask-cancel", "end the task: undo what it did", core.Control{Kind: core.EventCancel, Reason: reason}),
		ask("ask-cancel-unknown", "the same, also of an id that no task has yet", core.Control{Kind: core.EventCancel, Reason: reason, EvenIfUnknown: true}),
		ask("ask-undo", "undo the task, also when it is processed", core.Control{Kind: core.EventUndo, Reason: reason, IfSeq: 12}),
		ask("ask-resubmit", "begin again where it stopped", core.Control{Kind: core.EventResubmit, Reason: reason}),
		ask("ask-edit", "begin again with another input", core.Control{Kind: core.EventEdit, Reason: reason, IfSeq: 12, Input: []byte(`{"Cents":999}`)}),
		ask("ask-accept", "let the step that it stopped at count as done", core.Control{Kind: core.EventAccept, Reason: reason, Step: "charge", IfSeq: 12, Result: []byte(`{"Number":"by hand"}`)}),
		ask("ask-resolve", "end it as it stands", core.Control{Kind: core.EventResolve, Reason: reason, As: core.StateUndone}),
		ask("ask-extend", "give it more time", core.Control{Kind: core.EventExtend, Reason: reason, Until: goldenAt(3600)}),
		ask("ask-signal", "the answer that a signal step waits for", core.Control{Kind: core.EventSignal, Step: "approve", Result: []byte(`{"by":"desk"}`)}),
		ask("ask-signal-no", "its refusal", core.Control{Kind: core.EventSignal, Step: "approve", Reason: "too dear"}),
		ask("ask-signal-ask", "the answer to one ask, whose token task-asks has", core.Control{Kind: core.EventSignal, Step: "approve", Result: []byte(`{"by":"desk"}`), Ask: goldenAsk}),
		ask("ask-signal-no-ask", "the refusal of one ask", core.Control{Kind: core.EventSignal, Step: "approve", Reason: "too dear", Ask: goldenAsk}),
		ask("ask-migrate", "go on by another version of the plan", core.Control{Kind: core.EventMigrate, Reason: reason, Version: 2}),
		wrong("ask-not-known", "a member that is not known", `{"v":1,"kind":"cancel","id":"order-17","colour":"red"}`),
		wrong("ask-other-kind", "another request than its subject's", `{"v":1,"kind":"undo","id":"order-17"}`),
		wrong("ask-other-type", "another type than its subject's", `{"v":1,"kind":"cancel","id":"order-17","type":"parcel"}`),
		wrong("ask-other-use", "an ask in a request that answers none", `{"v":1,"kind":"cancel","id":"order-17","ask":"`+goldenAsk+`"}`),
		wrong("ask-version", "another version", `{"v":9,"kind":"cancel","id":"order-17"}`),
		{wiretest.Message{Name: "ask-accepted", What: "the request is stored; the owner has the last word", From: "duly", Answers: "ask-cancel", Subject: goldenInbox, Payload: AppendAccepted(nil, &accepted)}, func(_ Header, data []byte) error {
			got, err := DecodeSubmitAnswer(data)
			return same(got, err, accepted)
		}},
		refusedAnswer("ask-no-use", "it would change nothing", "", "ask-cancel",
			refusing(409, 7047, "order-17", `task "order-17" is processed: it is too late to cancel; possible now: undo`, 0), decode),
		refusedAnswer("ask-unknown", "there is no such task", "", "ask-cancel", refusing(404, 7041, "order-17", `no task "order-17" of type "order"`, 0), decode),
	}
}

func readGoldens(t *testing.T) []golden {
	names := Names{}
	filter := core.Filter{Type: "order", State: core.StateError, Label: "tenant=acme", Limit: 50, After: "c-1"}
	subject, get, err := names.GetRequest("order", "order-17")
	listSubject, list, err2 := names.ListRequest(filter)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	request := func(name, what, subject string, data []byte, want Query) golden {
		return golden{wiretest.Message{Name: name, What: what, From: "submitter", Subject: subject, Reply: goldenInbox, Payload: data}, func(_ Header, data []byte) error {
			if !names.IsQuery(subject) {
				return fmt.Errorf("%s is not a subject to read by", subject)
			}
			got, err := names.DecodeQuery(subject, data)
			return same(got, err, want)
		}}
	}
	tooMany := request("list-limit", "a limit that there is not", listSubject, []byte(`{"v":1,"type":"order","limit":1001}`), Query{})
	tooMany.Refused = &wiretest.Refused{Code: CodeBadRequest, ErrCode: ErrCodeQuery}
	tooMany.read = func(_ Header, data []byte) error {
		_, err := names.DecodeQuery(listSubject, data)
		return undecodable(err)
	}
	const task = `{"id":"order-17","type":"order","plan_version":1,"partition":14,"number":41,"state":"undone","reason":"step charge: no money","failed_step":"charge","round":1,"failures":1,` +
		`"created_at":"2026-11-25T10:00:00.000000Z","ended_at":"2026-11-25T10:00:03.000000Z","input":{"Cents":1999},"steps":[` +
		`{"name":"credit","agent":"credit.check","status":"done","attempt":1,"result":{"Points":700},"at":"2026-11-25T10:00:01.000000Z"},` +
		`{"name":"charge","agent":"payment.charge","status":"failed","attempt":1,"code":422,"error":"no money","at":"2026-11-25T10:00:02.000000Z"}]}`
	view := core.View{ID: "order-17", Type: "order", PlanVersion: 1, Partition: 14, Number: 41, State: core.StateUndone, Reason: "step charge: no money", FailedStep: "charge", Round: 1, Failures: 1,
		CreatedAt: goldenAt(0), EndedAt: goldenAt(3), Input: []byte(goldenInput), Steps: []core.StepView{
			{Name: "credit", Agent: "credit.check", Status: "done", Attempt: 1, Result: []byte(`{"Points":700}`), At: goldenAt(1)},
			{Name: "charge", Agent: "payment.charge", Status: "failed", Attempt: 1, Code: 422, Error: "no money", At: goldenAt(2)},
		}}
	const asks = `{"id":"order-17","type":"order","plan_version":2,"partition":14,"number":41,"state":"processing","round":0,"failures":0,"created_at":"2026-11-25T10:00:00.000000Z",` +
		`"input":{"Cents":1999},"steps":[{"name":"approve","kind":"signal","agent":"","status":"running","attempt":1,"ask":"` + goldenAsk + `","ask_needed":true,"at":"2026-11-25T10:00:01.000000Z"}]}`
	waits := core.View{ID: "order-17", Type: "order", PlanVersion: 2, Partition: 14, Number: 41, State: core.StateProcessing, CreatedAt: goldenAt(0), Input: []byte(goldenInput), Steps: []core.StepView{
		{Name: "approve", Kind: core.SignalStep, Status: "running", Attempt: 1, Ask: goldenAsk, AskNeeded: true, At: goldenAt(1)},
	}}
	shown := func(name, what, text string, want core.View) golden {
		return golden{wiretest.Message{Name: name, What: what, Rule: "Q8", From: "duly", Answers: "get", Subject: goldenInbox, Payload: []byte(text)}, func(_ Header, data []byte) error {
			got, err := DecodeTask(data)
			return same(got, err, want)
		}}
	}
	page := core.Page{Next: "c-2", Tasks: []core.View{view}}
	return []golden{
		request("get", "show a task", subject, get, Query{Type: "order", ID: "order-17"}),
		request("list", "a page of tasks", listSubject, list, Query{List: filter}),
		tooMany,
		shown("task", "a task, as the HTTP API shows it too", task, view),
		shown("task-asks", "a task with a signal step that waits: ask is the token of what it asks", asks, waits),
		{wiretest.Message{Name: "page", What: "a page, and where the next begins", Rule: "Q8", From: "duly", Answers: "list", Subject: goldenInbox, Payload: []byte(`{"tasks":[` + task + `],"next":"c-2"}`)}, func(_ Header, data []byte) error {
			got, err := DecodePage(data)
			return same(got, err, page)
		}},
		refusedAnswer("get-unknown", "there is no such task", "", "get", refusing(404, 7041, "order-17", "not found", 0), func(data []byte) error {
			_, err := DecodeTask(data)
			return err
		}),
	}
}

func planGoldens(t *testing.T) []golden {
	const plan = `{"name":"order","version":1,"steps":[{"name":"credit","agent":"credit.check","undoable":false},{"name":"charge","agent":"payment.charge","complete_by_ms":2000}]}`
	want := core.Plan{Name: "order", Version: 1, Steps: []core.Step{
		{Name: "credit", Agent: "credit.check"}, {Name: "charge", Agent: "payment.charge", After: []int{0}, Undoable: true, CompleteBy: 2 * time.Second}, // it says nothing
	}}
	apply := wiretest.Message{Name: "plan-apply", What: "a plan", From: "submitter", Subject: Names{}.SubjectPlansApply(), Reply: goldenInbox, Payload: []byte(plan)}
	refused := func(name, what, payload string, code int) golden {
		m := apply
		m.Name, m.What, m.Payload, m.Refused = name, what, []byte(payload), &wiretest.Refused{Code: code, ErrCode: map[int]int{CodeBadRequest: ErrCodeBody, 409: 7047}[code]}
		return golden{m, func(_ Header, data []byte) error {
			if _, err := DecodePlan(data); (err != nil) != (code == CodeBadRequest) {
				return fmt.Errorf("error %w, want that of a plan that is refused with %d", err, code)
			}
			return nil
		}}
	}
	answer := func(name, what, answers string, a PlanAnswer) golden {
		return golden{wiretest.Message{Name: name, What: what, From: "duly", Answers: answers, Subject: goldenInbox, Payload: plainJSON(t, a)}, func(_ Header, data []byte) error {
			got, err := DecodePlanAnswer(data)
			if a.Error != nil {
				api, ok := errors.AsType[*APIError](err)
				if !ok {
					return fmt.Errorf("error %w, want a refusal", err)
				}
				got.Error, err = api, nil
			}
			return same(got, err, a)
		}}
	}
	return []golden{
		{apply, func(_ Header, data []byte) error {
			got, err := DecodePlan(data)
			return same(got, err, want)
		}},
		refused("plan-not-known", "a member that is not known", `{"name":"order","version":2,"colour":"red","steps":[{"name":"a","agent":"b"}]}`, CodeBadRequest),
		refused("plan-zero", "a zero, which is refused", `{"name":"order","version":2,"steps":[{"name":"a","agent":"b","attempts_max":0}]}`, CodeBadRequest),
		refused("plan-other", "another content under a version that is stored", `{"name":"order","version":1,"steps":[{"name":"a","agent":"b"}]}`, 409),
		answer("plan-applied", "the plan is stored", "plan-apply", PlanAnswer{Name: "order", Version: 1, Stored: true}),
		answer("plan-refused", "the version is stored with another content", "plan-other",
			PlanAnswer{Name: "order", Version: 1, Error: &APIError{Code: 409, ErrCode: 7047, Description: "plan order version 1: plan version is stored with another content"}}),
	}
}

// TestProtocolIsWhole: the golden messages have every kind of request, one with the token of an ask, every word of a status and every outcome of a probe
// that there is, so that a new one comes with its example.
func TestProtocolIsWhole(t *testing.T) {
	files, err := wiretest.Read(protocolDir)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{`"ask":"`: true}
	for _, k := range controlKinds {
		missing[`"kind":"`+k.word+`"`] = k.kind != core.EventOverdue // which no client may ask
	}
	for _, word := range []string{core.StatusReceived, core.StatusRefused, string(core.StateProcessed), string(core.StateUndone), string(core.StateError), string(core.StateUndoing)} {
		missing[`"status":"`+word+`"`] = true
	}
	for _, outcome := range []core.ProbeOutcome{core.ProbeDone, core.ProbeAbsent, core.ProbeInProgress} {
		missing[`"outcome":"`+string(outcome)+`"`] = true
	}
	for _, header := range []string{HeaderCompleteBy, headerStartAt, HeaderVersion, HeaderReplyTo, HeaderTrace, HeaderLabels, HeaderCause, HeaderSubject, HeaderInstance, HeaderError, HeaderErrorCode} {
		missing[header] = true
	}
	for _, m := range files {
		for text := range missing {
			if _, has := m.Headers[text]; has || m.Refused == nil && strings.Contains(string(m.Payload), text) {
				missing[text] = false
			}
		}
	}
	for text, is := range missing {
		if is {
			t.Errorf("no golden message has %s", text)
		}
	}
}
