package duly_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/wire"
)

// fake stands in for a Duly server: a real NATS server, and behind the wire a
// scheduler that keeps everything in memory, calls each step once and undoes at
// the first failure.
type fake struct {
	url    string
	dir    string
	server *natsserver.Server
	conn   *natsbus.Conn

	mu       sync.Mutex
	plans    map[string]*core.Plan
	specs    map[string][]byte
	inputs   map[string][]byte
	requests []*natsbus.SubmitRequest // at the fast door, refused ones too
	controls []core.Control
	waits    map[int64]chan core.Reply // commands out, by their task's number
	out      int                       // tasks at work
	ended    sync.Cond                 // one fewer is
	views    map[string]core.View      // what the store has, by id

	// refuse, where set, is asked first about every submission; nil: take it. refuseAsk is the same of requests about tasks.
	refuse    func(r *natsbus.SubmitRequest) *wire.RefusedError
	refuseAsk func(r *natsbus.AskRequest) *wire.RefusedError
}

// newFake starts one; the caller stops it.
func newFake(ctx context.Context) (*fake, error) { return newFakeIn(ctx, wire.DefaultNamespace) }

// newFakeIn starts one with a namespace.
func newFakeIn(ctx context.Context, namespace string) (*fake, error) {
	dir, err := os.MkdirTemp("", "duly-test-")
	if err != nil {
		return nil, err
	}
	server, err := natsserver.Start(natsserver.Options{Dir: dir, SyncOff: true})
	if err != nil {
		return nil, err
	}
	f := &fake{
		url: server.ClientURL(), dir: dir, server: server,
		plans: map[string]*core.Plan{}, specs: map[string][]byte{}, inputs: map[string][]byte{}, waits: map[int64]chan core.Reply{}, views: map[string]core.View{},
	}
	f.ended.L = &f.mu
	if f.conn, err = natsbus.Dial(ctx, natsbus.Options{URL: f.url, Namespace: namespace, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	js, err := jetstream.New(f.conn.NATS())
	if err != nil {
		return nil, err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: f.conn.Names().StreamEvents(), Subjects: []string{namespace + ".events.*.*"}})
	if err != nil {
		return nil, err
	}
	return f, f.serve()
}

func (f *fake) serve() error {
	_, err1 := f.conn.ServePlans(f.apply)
	_, err2 := f.conn.ServeSubmit(f.submit)
	_, err3 := f.conn.ServeAsk(func(r *natsbus.AskRequest) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.controls = append(f.controls, r.Control)
		if f.refuseAsk != nil {
			if refusal := f.refuseAsk(r); refusal != nil {
				r.Refuse(refusal.Code, refusal.ErrCode, refusal.Description, refusal.Retry)
				return
			}
		}
		r.Accept(uint64(len(f.controls)), 0)
	}, f.read)
	_, err4 := f.conn.ServeReplies(0, f.reply, func(r core.Reply) {
		f.reply(core.Reply{Number: r.Number, Code: 503, Error: "no agent listens"})
	})
	return errors.Join(err1, err2, err3, err4)
}

// read answers as ingest does.
func (f *fake) read(r *natsbus.ReadRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.ID != "" {
		view, ok := f.views[r.ID]
		data, err := api.EncodeTask(&view)
		if !ok || view.Type != r.Type || err != nil {
			r.Reject(404, 7041, "not found", 0)
			return
		}
		r.Answer(data)
		return
	}
	var page core.Page
	for _, id := range slices.Sorted(maps.Keys(f.views)) {
		view := f.views[id]
		switch {
		case id <= r.List.After || r.List.Type != "" && view.Type != r.List.Type || r.List.State != "" && view.State != r.List.State:
		case len(page.Tasks) == r.List.Limit:
			page.Next = page.Tasks[len(page.Tasks)-1].ID
		default:
			view.Input = nil
			page.Tasks = append(page.Tasks, view)
		}
	}
	data, err := api.EncodePage(&page)
	if err != nil {
		r.Reject(500, 7044, err.Error(), 0)
		return
	}
	r.Answer(data)
}

// settle returns when every task that was answered for has ended.
func (f *fake) settle() {
	f.mu.Lock() // an answer is sent with it held
	defer f.mu.Unlock()
	for f.out > 0 {
		f.ended.Wait()
	}
}

func (f *fake) stop() error {
	f.settle()
	f.conn.Close()
	return errors.Join(f.server.Shutdown(), os.RemoveAll(f.dir))
}

// connect is a user's connection.
func (f *fake) connect() (*nats.Conn, error) { return nats.Connect(f.url, nats.Name("shop")) }

// await returns when the server knows of the shop's agents.
func (f *fake) await(ctx context.Context) error {
	for _, agent := range []string{Credit.Agent(), Charge.Agent(), Ship.Agent()} {
		for _, undo := range []bool{false, true} {
			err := nats.ErrNoResponders
			for errors.Is(err, nats.ErrNoResponders) {
				// It is not understood, but it is answered.
				_, err = f.conn.NATS().RequestWithContext(ctx, f.conn.Names().CommandSubject(agent, undo), nil)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fake) apply(spec []byte) wire.PlanAnswer {
	plan, err := wire.DecodePlan(spec)
	if err != nil {
		return wire.PlanAnswer{Error: &wire.APIError{Code: 400, Description: err.Error()}}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.specs[plan.Name]; old != nil && f.plans[plan.Name].Version == plan.Version && !bytes.Equal(old, spec) {
		return wire.PlanAnswer{Error: &wire.APIError{Code: 409, Description: core.ErrPlanConflict.Error()}}
	}
	f.specs[plan.Name], f.plans[plan.Name] = bytes.Clone(spec), &plan
	return wire.PlanAnswer{Name: plan.Name, Version: plan.Version, Stored: true}
}

func (f *fake) submit(r *natsbus.SubmitRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r)
	if f.refuse != nil {
		if refusal := f.refuse(r); refusal != nil {
			r.Reject(refusal.Code, refusal.ErrCode, refusal.Description, refusal.Retry)
			return
		}
	}
	plan := f.plans[r.Type]
	if plan == nil {
		r.Reject(404, 0, "no plan "+r.Type, 0)
		return
	}
	old, known := f.inputs[r.ID]
	if known && !bytes.Equal(old, r.Input) {
		r.Reject(409, wire.ErrCodeTaken, "the id is a task with another input", 0)
		return
	}
	f.inputs[r.ID] = bytes.Clone(r.Input)
	if !known {
		f.views[r.ID] = core.View{ID: r.ID, Type: r.Type, State: core.StateProcessing, InputHash: core.HashInput(r.Type, r.Input), Input: bytes.Clone(r.Input)}
	}
	number := int64(len(f.inputs))
	if !known {
		f.out++
		go f.run(plan, number, *r)
	}
	r.Accept(f.conn.Names().StreamTasks(), uint64(number), 0, "")
}

// run is the life of a task.
func (f *fake) run(plan *core.Plan, number int64, r natsbus.SubmitRequest) {
	tell := func(state string) {
		f.conn.Live(core.Status{ID: r.ID, Type: r.Type, Status: state, At: core.InstantOf(time.Now())})
	}
	tell(core.StatusReceived)
	tell(string(core.StateProcessing))
	end := core.Ending{EndNumber: number, ID: r.ID, Type: r.Type, State: core.StateProcessed, At: core.InstantOf(time.Now())}
	var results []core.StepResult
	for i := range plan.Steps {
		reply := f.call(&plan.Steps[i], number, &r, results, nil)
		if reply.Code == 0 {
			results = append(results, core.StepResult{Step: plan.Steps[i].Name, Result: reply.Result})
			continue
		}
		tell(string(core.StateUndoing))
		end.State, end.Step, end.Error = core.StateUndone, plan.Steps[i].Name, reply.Error
		for j := i - 1; j >= 0; j-- {
			if plan.Steps[j].Undoable {
				f.call(&plan.Steps[j], number, &r, results, results[j].Result)
			}
		}
		break
	}
	f.mu.Lock()
	view := f.views[r.ID]
	view.State, view.Reason, view.FailedStep, view.EndedAt = end.State, end.Error, end.Step, end.At
	f.views[r.ID] = view
	f.mu.Unlock()
	told := make(chan error, 1)
	f.conn.PublishEndings([]core.Ending{end}, func(err error) { told <- err })
	<-told
	tell(string(end.State))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out--
	f.ended.Broadcast()
}

// call sends one command and waits for its answer; a result makes it an undo.
func (f *fake) call(step *core.Step, number int64, r *natsbus.SubmitRequest, results []core.StepResult, result []byte) core.Reply {
	answer := make(chan core.Reply, 1)
	f.mu.Lock()
	f.waits[number] = answer
	f.mu.Unlock()
	err := f.conn.SendCommand(&core.Command{
		Undo: result != nil, Agent: step.Agent, Number: number, Seq: 1,
		Task: r.ID, Type: r.Type, Step: step.Name, Attempt: 1,
		CompleteBy: core.InstantOf(time.Now().Add(step.CompleteBy)), Left: step.CompleteBy,
		Input: r.Input, Results: results, Result: result, Trace: r.Trace,
	})
	if err != nil {
		return core.Reply{Code: 500, Error: err.Error()}
	}
	select {
	case reply := <-answer:
		return reply
	case <-time.After(step.CompleteBy):
		return core.Reply{Code: 408, Error: "overdue"}
	}
}

func (f *fake) reply(r core.Reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.waits[r.Number] <- r:
	default: // answered already
	}
}

// seen are the submissions that came to the fast door, as "id by" each.
func (f *fake) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, r := range f.requests {
		all = append(all, strings.TrimSpace(r.ID+" "+r.CompleteBy))
	}
	return strings.Join(all, ", ")
}

// request is the nth submission that came.
func (f *fake) request(n int) *natsbus.SubmitRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[n]
}

// asked are the control messages that came.
func (f *fake) asked() []core.Control {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.controls
}
