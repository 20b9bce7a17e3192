package duly

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/core"
)

// play runs one command of testCharge against handlers, as they are and as such that do
// not wait: the reply is the same.
func play(t *testing.T, cmd core.Command, do func(context.Context, Call[testOrder]) (testReceipt, error), undo func(context.Context, Undo[testOrder, testReceipt]) error) core.Reply {
	t.Helper()
	agent, err := NewAgent(nil, Retries(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := testCharge.Serve(agent, do, undo); err != nil {
		t.Fatal(err)
	}
	cmd.Agent, cmd.Step, cmd.Task, cmd.Type, cmd.Attempt = "payment.charge", "charge", "order-17", "order", 2
	cmd.Left = time.Minute
	if cmd.Input == nil {
		cmd.Input = []byte(`{"Cents":1999}`)
	}
	async, err := NewAgent(nil, Retries(0))
	if err != nil {
		t.Fatal(err)
	}
	err = testCharge.ServeAsync(async,
		func(ctx context.Context, call Call[testOrder], done func(testReceipt, error)) {
			go func() { done(do(ctx, call)) }()
		},
		func(ctx context.Context, u Undo[testOrder, testReceipt], done func(error)) {
			go func() { done(undo(ctx, u)) }()
		})
	if err != nil {
		t.Fatal(err)
	}
	var replies []core.Reply
	for _, a := range []*Agent{agent, async} {
		reply, answered := a.Runtime().Handle(t.Context(), core.InstantOf(time.Now()), &cmd)
		if !answered {
			t.Fatal("no answer")
		}
		replies = append(replies, reply)
	}
	if !reflect.DeepEqual(replies[0], replies[1]) {
		t.Errorf("by Serve %+v, by ServeAsync %+v", replies[0], replies[1])
	}
	return replies[1]
}

func noUndo(context.Context, Undo[testOrder, testReceipt]) error { return nil }

func noDo(context.Context, Call[testOrder]) (testReceipt, error) { return testReceipt{}, nil }

// covers: S5
func TestCallCarriesEverything(t *testing.T) {
	results := []core.StepResult{{Step: "credit", Result: []byte("700")}}
	reply := play(t, core.Command{Results: results, Round: 1, Trace: "00-1-2-01"}, func(ctx context.Context, call Call[testOrder]) (testReceipt, error) {
		score, err := testCredit.Result(call)
		_, bounded := ctx.Deadline()
		return testReceipt{fmt.Sprint(call.Task, call.Type, call.Step, call.Key, call.Attempt, call.Trace, call.Input.Cents, score, bounded)}, err
	}, noUndo)
	if got, want := string(reply.Result), `{"Payment":"order-17orderchargeorder-17/charge/1200-1-2-011999 700 true"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// covers: S5, S39
func TestUndoCarriesTheResult(t *testing.T) {
	for _, test := range []struct {
		result string
		known  bool
		want   string
	}{
		{"", false, "{} false 1999 700"},
		{`{"Payment":"p-1"}`, true, "{p-1} true 1999 700"},
		{"null", true, "{} true 1999 700"},
		{"", true, "{} true 1999 700"},
	} {
		cmd := core.Command{Undo: true, Results: []core.StepResult{{Step: "credit", Result: []byte("700")}}}
		if test.known {
			cmd.Result = []byte(test.result)
		}
		got := ""
		reply := play(t, cmd, noDo, func(_ context.Context, undo Undo[testOrder, testReceipt]) error {
			score, err := testCredit.Result(undo)
			got = fmt.Sprint(undo.Result, undo.Known, undo.Input.Cents, score)
			return err
		})
		if want := strings.ReplaceAll(test.want, " ", ""); strings.ReplaceAll(got, " ", "") != want || reply.Code != 0 {
			t.Errorf("result %q, known %v: got %s, %+v", test.result, test.known, got, reply)
		}
	}
}

func TestErrorsOfHandlers(t *testing.T) {
	plain := errors.New("no card")
	for _, test := range []struct {
		err  error
		code int
	}{
		{plain, 500},
		{Refuse(plain), 422},
		{fmt.Errorf("pay: %w", Refuse(plain)), 422},
		{RefuseCode(404, plain), 404},
		{RefuseCode(500, plain), 422},
		{Fail(plain), 512},
		{ErrGone, 410},
		{ErrInProgress, 425},
	} {
		reply := play(t, core.Command{}, func(context.Context, Call[testOrder]) (testReceipt, error) { return testReceipt{}, test.err }, noUndo)
		if reply.Code != test.code {
			t.Errorf("%v: code %d, want %d", test.err, reply.Code, test.code)
		}
		if !errors.Is(Refuse(plain), plain) {
			t.Error("Refuse hides its cause")
		}
	}
}

// What cannot be decoded is final for do; an undo is not given up so easily.
//
// covers: E17, I17
func TestForeignInput(t *testing.T) {
	reply := play(t, core.Command{Input: []byte(`{"Cents":"many"}`)}, noDo, noUndo)
	if reply.Code != 400 || !strings.Contains(reply.Error, "input of task order-17 is not what step charge expects") {
		t.Errorf("do: got %+v", reply)
	}
	for _, cmd := range []core.Command{{Input: []byte(`[]`)}, {Result: []byte(`[]`)}} {
		cmd.Undo = true
		if reply := play(t, cmd, noDo, noUndo); reply.Code != 500 || !strings.Contains(reply.Error, "order-17") {
			t.Errorf("undo: got %+v", reply)
		}
	}
}

func TestResultThatIsNoJSON(t *testing.T) {
	agent, err := NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	odd := NewCheck[testOrder, any]("odd", "odd", ResultMax(4))
	if err := odd.Serve(agent, func(_ context.Context, call Call[testOrder]) (any, error) {
		if call.Attempt == 1 {
			return func() {}, nil
		}
		return "too long", nil
	}); err != nil {
		t.Fatal(err)
	}
	for attempt, want := range []string{"", "result of step odd: json: unsupported type: func()", "result has 10 bytes, result_max is 4"} {
		if attempt == 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			now := core.InstantOf(time.Now())
			cmd := core.Command{Agent: "odd", Step: "odd", Task: "t", Attempt: attempt, Left: time.Minute, Input: []byte("{}")}
			reply, _ := agent.Runtime().Handle(t.Context(), now, &cmd)
			if reply.Code != core.CodeFailed || reply.Error != want {
				t.Errorf("got %+v, want %s", reply, want)
			}
		})
	}
}

func TestResultsThatAreMissing(t *testing.T) {
	if _, err := testCredit.Result(Call[testOrder]{Task: "t"}); err == nil || !strings.Contains(err.Error(), "task t: no result of step credit") {
		t.Errorf("absent: %v", err)
	}
	call := Call[testOrder]{Task: "t", results: []core.StepResult{{Step: "credit"}, {Step: "charge", Result: []byte("[]")}}}
	if score, err := testCredit.Result(call); score != 0 || err != nil {
		t.Errorf("empty: %d, %v", score, err)
	}
	if _, err := testCharge.Result(call); err == nil || !strings.Contains(err.Error(), "task t: result of step charge") {
		t.Errorf("foreign: %v", err)
	}
}

func TestCheckThatDoesNotWait(t *testing.T) {
	agent, err := NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := testCredit.ServeAsync(agent, func(_ context.Context, call Call[testOrder], done func(int, error)) {
		time.AfterFunc(time.Millisecond, func() { done(call.Input.Cents/2, nil) })
	}); err != nil {
		t.Fatal(err)
	}
	cmd := core.Command{Agent: testCredit.Agent(), Step: "credit", Task: "t", Attempt: 1, Left: time.Minute, Input: []byte(`{"Cents":1400}`)}
	reply, answered := agent.Runtime().Handle(t.Context(), core.InstantOf(time.Now()), &cmd)
	if !answered || reply.Code != 0 || string(reply.Result) != "700" {
		t.Errorf("%v, %+v", answered, reply)
	}
}

func TestServeAsyncRefusals(t *testing.T) {
	agent, err := NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	do := func(_ context.Context, _ Call[testOrder], done func(testReceipt, error)) { done(testReceipt{}, nil) }
	undo := func(_ context.Context, _ Undo[testOrder, testReceipt], done func(error)) { done(nil) }
	if err := testCharge.ServeAsync(agent, do, nil); err == nil || !strings.Contains(err.Error(), "no undo handler") {
		t.Errorf("no undo: %v", err)
	}
	if err := testCharge.ServeAsync(agent, nil, undo); err == nil || !strings.Contains(err.Error(), "no do handler") {
		t.Errorf("no do: %v", err)
	}
	if err := testCredit.ServeAsync(agent, nil); err == nil || !strings.Contains(err.Error(), "no do handler") {
		t.Errorf("check without do: %v", err)
	}
}

func TestServeRefusals(t *testing.T) {
	agent, err := NewAgent(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := testCharge.Serve(agent, noDo, nil); err == nil || !strings.Contains(err.Error(), "no undo handler") {
		t.Errorf("no undo: %v", err)
	}
	if err := testCharge.Serve(agent, nil, noUndo); err == nil || !strings.Contains(err.Error(), "no do handler") {
		t.Errorf("no do: %v", err)
	}
	if err := testCharge.Serve(agent, noDo, noUndo); err != nil {
		t.Error(err)
	}
	if err := testCharge.Serve(agent, noDo, noUndo); err == nil || !strings.Contains(err.Error(), "served already") {
		t.Errorf("twice: %v", err)
	}
	if err := agent.Run(t.Context()); err == nil {
		t.Error("an agent without a connection runs")
	}
}
