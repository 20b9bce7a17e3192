package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"
)

const (
	inputMax   = 64 << 10 // bytes of a do
	resultMax  = 64 << 10 // bytes of an answer
	runningMax = 64       // commands at work at a time
	waitingMax = 1024     // commands at work or waiting; one more is told to come again
)

var (
	taskID = regexp.MustCompile(`^[A-Za-z0-9_~-]{1,255}$`) // ~ stands before what a child is called
	name   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	number = regexp.MustCompile(`^[0-9]{1,10}$`)
)

// command is what is read of a command: members that are not known are passed over.
type command struct {
	V          int             `json:"v"`
	Task       string          `json:"task"`
	Type       string          `json:"type"`
	Step       string          `json:"step"`
	Key        string          `json:"key"`
	CompleteBy time.Time       `json:"complete_by"`
	LeftMS     int64           `json:"left_ms"`
	Input      json.RawMessage `json:"input"`
}

// refusal is an answer with a code: 4xx is final, 512 is final and undone, other 5xx are tried again.
type refusal struct {
	code int
	text string
}

// Error is the answer's words.
func (r *refusal) Error() string { return r.text }

// work carries out one command of so many bytes.
type work func(ctx context.Context, c *command, size int) (any, error)

type agent struct {
	ledger  *ledger
	room    chan struct{} // one for each command that came
	workers chan struct{} // one for each at work
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
}

func newAgent(l *ledger) *agent {
	return &agent{ledger: l, room: make(chan struct{}, waitingMax), workers: make(chan struct{}, runningMax)}
}

// take hands commands over to goroutines, for the library calls a handler one command at a time.
func (a *agent) take(w work) micro.HandlerFunc {
	return func(r micro.Request) {
		came := time.Now()
		select {
		case a.room <- struct{}{}:
		default:
			fail(r, &refusal{429, fmt.Sprintf("%d commands are at work", waitingMax)})
			return
		}
		if !a.enter() {
			fail(r, &refusal{503, "the agent is stopping"})
			return
		}
		go func() {
			defer a.running.Done()
			defer func() { <-a.room }()
			a.workers <- struct{}{}
			defer func() { <-a.workers }()
			answer(r, came, w)
		}()
	}
}

func (a *agent) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stopped {
		a.running.Add(1)
	}
	return !a.stopped
}

// stop returns when what has come is answered; what comes later is told to come again.
func (a *agent) stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.running.Wait()
}

// answer carries one command out, and answers it once or, when its time is over, not at all.
func answer(r micro.Request, came time.Time, w work) {
	c, err := decode(r.Data())
	if err != nil {
		fail(r, err)
		return
	}
	until := came.Add(time.Duration(c.LeftMS) * time.Millisecond) // by a clock that does not jump
	if c.CompleteBy.Before(until) {
		until = c.CompleteBy
	}
	if !time.Now().Before(until) {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	said, err := carryOut(ctx, c, len(r.Data()), w)
	switch {
	case !time.Now().Before(until): // another try has begun
	case err != nil:
		fail(r, err)
	default:
		_ = r.Respond(said) // an answer that is lost is asked for again
	}
}

// carryOut gives the answer in JSON, or nothing. A panic and an answer that cannot be sent would come again: they fail for
// good, and an undo takes back what was done until then.
func carryOut(ctx context.Context, c *command, size int, w work) (answer []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Printf("panic: %v\n%s", p, debug.Stack())
			err = &refusal{512, fmt.Sprintf("panic: %v", p)}
		}
	}()
	said, err := w(ctx, c, size)
	if err != nil || said == nil {
		return nil, err
	}
	answer, err = json.Marshal(said)
	switch {
	case err != nil:
		return nil, &refusal{512, "the result: " + err.Error()}
	case len(answer) > resultMax:
		return nil, &refusal{512, fmt.Sprintf("the result has %d bytes, the limit is %d", len(answer), resultMax)}
	}
	return answer, nil
}

// fail answers an error: one without a code is tried again.
func fail(r micro.Request, err error) {
	code := 500
	if refused, ok := errors.AsType[*refusal](err); ok {
		code = refused.code
	}
	text := []rune(fmt.Sprintf("%.400q", err.Error())) // on one line
	_ = r.Error(strconv.Itoa(code), string(text[1:len(text)-1]), nil)
}

func decode(data []byte) (*command, error) {
	var c command
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, &refusal{400, "not a command: " + err.Error()}
	}
	if c.V != 1 {
		return nil, &refusal{501, fmt.Sprintf("version %d of a command, want 1", c.V)}
	}
	round, ofStep := strings.CutPrefix(c.Key, c.Task+"/"+c.Step+"/")
	if !ofStep || !taskID.MatchString(c.Task) || !name.MatchString(c.Type) || !name.MatchString(c.Step) || !number.MatchString(round) {
		return nil, &refusal{400, "task, type, step: want names; key: want <task>/<step>/<round>"}
	}
	if c.CompleteBy.IsZero() {
		return nil, &refusal{400, "complete_by: missing"}
	}
	return &c, nil
}

// charge is the do. It alone looks at the input: an undo is never refused for it.
func (a *agent) charge(ctx context.Context, c *command, size int) (any, error) {
	if size > inputMax {
		return nil, &refusal{413, fmt.Sprintf("the command has %d bytes, the limit is %d", size, inputMax)}
	}
	var in struct {
		Cents int64  `json:"cents"`
		Card  string `json:"card"`
	}
	if err := json.Unmarshal(c.Input, &in); err != nil {
		return nil, &refusal{422, "input: " + err.Error()}
	}
	if in.Cents <= 0 {
		return nil, &refusal{422, fmt.Sprintf("cents: %d, want 1 or more", in.Cents)}
	}
	return a.ledger.do(ctx, c.Key, in.Cents, in.Card == "slow")
}

func (a *agent) refund(ctx context.Context, c *command, _ int) (any, error) {
	return nil, a.ledger.undo(ctx, c.Key)
}

// probe says what became of a do.
func (a *agent) probe(ctx context.Context, c *command, _ int) (any, error) {
	outcome, result, err := a.ledger.probe(ctx, c.Key)
	if err != nil {
		return nil, err
	}
	return struct {
		V       int             `json:"v"`
		Outcome string          `json:"outcome"`
		Result  json.RawMessage `json:"result,omitempty"`
	}{1, outcome, result}, nil
}
