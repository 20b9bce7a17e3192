package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/rpc"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/payout"
	"duly.dev/duly/examples/travel"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
	"duly.dev/duly/schema"
)

// workloads are the examples that a round can run beside its deliveries, and how many of their tasks arrive a second.
var workloads = map[string]struct {
	rate  float64
	build func(mock.Settings) mock.Example
}{
	"travel": {10, func(s mock.Settings) mock.Example { return travel.New(s) }},
	"payout": {1, func(s mock.Settings) mock.Example { return payout.New(s) }}, // a night has up to eleven children
}

// workloadKinds are the faults of a round with a workload where -only names no others: processes, servers and links die.
const workloadKinds = "kill-scheduler,kill-schedulers,kill-ingest,kill-supervisor,stop-scheduler,kill-agents,stop-agents,rolling-restart," +
	"kill-nats,stop-nats,cut-nats,kill-stream-leader,kill-nats-node,kill-postgres,cut-postgres,half-postgres,kill-dev,stop-dev"

// workloadDeliveries is how many deliveries a second come beside a workload where -rate says nothing.
const workloadDeliveries = "20"

// workloadOpenMax bounds the tasks of a workload without an answer; more arrivals are left out and counted.
const workloadOpenMax = 500

// settingsOf are those of an example in a round.
func settingsOf(seed uint64) (mock.Settings, error) {
	faults, err := mock.FaultsNamed("some")
	return mock.Settings{Faults: faults, Seed: seed, CallTime: callBy}, err
}

// work is a workload: an example whose services are in this process.
type work struct {
	name    string
	example mock.Example
	desk    *desk

	open    atomic.Int64
	leftOut atomic.Int64
	mu      sync.Mutex
	tried   []mock.Ref        // all that were handed in
	taken   map[mock.Ref]bool // of them, those with a positive answer
	refused []error
	stop    context.CancelFunc
	quit    context.CancelFunc
	wg      sync.WaitGroup
}

// openWork makes the services of a workload, and serves them at a socket.
func openWork(name, socket string, seed uint64) (*work, error) {
	s, err := settingsOf(seed)
	if err != nil {
		return nil, err
	}
	k := &work{name: name, example: workloads[name].build(s), taken: map[mock.Ref]bool{}}
	shop := &Workshop{services: map[string]*mock.Service{}}
	for _, service := range k.example.Books() {
		shop.services[service.Name()] = service
	}
	k.desk, err = openDesk(socket, shop)
	return k, err
}

// begin lets tasks arrive until end.
func (k *work) begin(ctx context.Context, client *duly.Client) {
	trying, quit := context.WithCancel(ctx)
	arriving, stop := context.WithCancel(trying)
	k.stop, k.quit = stop, quit
	k.wg.Go(func() {
		tick := time.NewTicker(time.Duration(float64(time.Second) / workloads[k.name].rate))
		defer tick.Stop()
		for number := 0; ; {
			select {
			case <-arriving.Done():
				return
			case <-tick.C:
			}
			if k.open.Load() >= workloadOpenMax {
				k.leftOut.Add(1)
				continue
			}
			k.open.Add(1)
			n := number
			number++
			k.wg.Go(func() {
				defer k.open.Add(-1)
				k.submit(trying, client, n)
			})
		}
	})
}

// submit hands the task of a number in again and again until it has its answer or ctx ends.
func (k *work) submit(ctx context.Context, client *duly.Client, number int) {
	for first := true; ctx.Err() == nil; first = false {
		try, cancel := context.WithTimeout(ctx, answerMax)
		ref, err := k.example.Submit(try, client, number)
		cancel()
		k.mu.Lock()
		if first {
			k.tried = append(k.tried, ref)
		}
		if err == nil {
			k.taken[ref] = true
		} else if errors.Is(err, duly.ErrRefused) {
			k.refused = append(k.refused, err)
		}
		k.mu.Unlock()
		if err == nil || errors.Is(err, duly.ErrRefused) {
			return
		}
	}
}

// end lets nothing more arrive and waits, for so long, until every task has its answer.
func (k *work) end(patience time.Duration) {
	k.stop()
	late := time.AfterFunc(patience, k.quit)
	k.wg.Wait()
	late.Stop()
	k.quit()
}

func (k *work) close() error {
	if k.quit != nil {
		k.quit()
		k.wg.Wait()
	}
	return k.desk.close()
}

// workReport is what a workload came to.
type workReport struct {
	Name      string `json:"name"`
	Tasks     int    `json:"tasks"` // accepted
	Children  int    `json:"children"`
	Processed int    `json:"processed"`
	Undone    int    `json:"undone"`
	Error     int    `json:"error"`
	Lost      int    `json:"lost"` // accepted and not ended, children too
	Doubled   int    `json:"doubled"`
	HalfDone  int    `json:"half_done"`
	LeftOut   int    `json:"arrivals_missed"`
	Effects   int    `json:"effects"` // that stand at the end
}

// story is one task of a workload with its children, as they are stored.
type story struct {
	ref      mock.Ref
	taken    bool
	stored   bool
	task     core.View
	children []core.View
}

// stories reads all tasks of the workload from the store.
func (w *world) stories(ctx context.Context) ([]story, error) {
	store, err := w.store()
	if err != nil {
		return nil, err
	}
	var all []story
	for _, ref := range w.work.tried {
		s := story{ref: ref, taken: w.work.taken[ref], stored: true}
		partition := wire.PartitionOf(ref.ID, partitions)
		s.task, err = store.Get(ctx, partition, ref.ID)
		if errors.Is(err, core.ErrNotFound) {
			s.stored = false
		} else if err != nil {
			return nil, err
		}
		for _, child := range w.work.example.Children(ref) { // they live where their parent does
			v, err := store.Get(ctx, partition, child.ID)
			if errors.Is(err, core.ErrNotFound) {
				continue // never born
			}
			if err != nil {
				return nil, err
			}
			s.children = append(s.children, v)
		}
		all = append(all, s)
	}
	return all, nil
}

// judge holds stories against what stands in the services' books, by key, and says what is wrong.
func (r *workReport) judge(books mock.Books, stories []story, doneTwice map[string]int) (wrong []string) {
	standing := map[string]int{} // by task and step, whatever the round
	services := map[*mock.Service]bool{}
	for _, service := range books {
		if services[service] {
			continue
		}
		services[service] = true
		for _, key := range service.Standing() {
			standing[key[:strings.LastIndexByte(key, '/')]]++
			r.Effects++
		}
	}
	say := func(count *int, format string, args ...any) {
		*count++
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	look := func(v *core.View, whole core.State) {
		if !v.State.Ended() {
			say(&r.Lost, "task %s is %s", v.ID, v.State)
		}
		if n := doneTwice[v.ID]; n > 0 {
			say(&r.Doubled, "task %s: %d steps have two done rows in a round", v.ID, n)
		}
		for i := range v.Steps {
			step := &v.Steps[i]
			if books[v.Type+"/"+step.Name] == nil {
				continue
			}
			got, want := standing[v.ID+"/"+step.Name], 0
			delete(standing, v.ID+"/"+step.Name)
			if step.Status == core.StepDone.String() {
				want = 1
			}
			switch {
			case got > 1:
				say(&r.Doubled, "task %s: %d effects of step %s stand", v.ID, got, step.Name)
			case got != want:
				say(&r.HalfDone, "task %s: step %s is %s, and %d effects of it stand", v.ID, step.Name, step.Status, got)
			case got > 0 && whole == core.StateUndone:
				say(&r.HalfDone, "task %s: step %s stands, and the whole is undone", v.ID, step.Name)
			}
		}
	}
	for i := range stories {
		s := &stories[i]
		if s.taken {
			r.Tasks++
		}
		if !s.stored {
			if s.taken {
				say(&r.Lost, "task %s was accepted and is not stored", s.ref.ID)
			}
			continue
		}
		if s.taken {
			switch s.task.State {
			case core.StateProcessed:
				r.Processed++
			case core.StateUndone:
				r.Undone++
			case core.StateError:
				r.Error++
			}
		}
		look(&s.task, s.task.State)
		r.Children += len(s.children)
		for k := range s.children {
			look(&s.children[k], s.task.State)
		}
	}
	for key, n := range standing {
		say(&r.HalfDone, "%d effects of %s stand, which no stored task has made", n, key)
	}
	return wrong
}

// wrongMost is how many findings of a workload are named.
const wrongMost = 20

// closeWork closes the books of the workload.
func (w *world) closeWork(ctx context.Context, r *report) error {
	store, err := w.store()
	if err != nil {
		return err
	}
	audit, err := store.Books(ctx)
	if err != nil {
		return err
	}
	twice := map[string]int{}
	for _, d := range audit.DoneTwice {
		twice[d.Task]++
	}
	stories, err := w.stories(ctx)
	if err != nil {
		return err
	}
	found := &workReport{Name: w.work.name, LeftOut: int(w.work.leftOut.Load())}
	wrong := found.judge(w.work.example.Books(), stories, twice)
	for i, text := range wrong {
		if i == wrongMost {
			fmt.Fprintf(w.out, "and %d more\n", len(wrong)-wrongMost)
			break
		}
		fmt.Fprintf(w.out, "workload %s: %s\n", w.work.name, text)
	}
	for i := range stories {
		if s := &stories[i]; s.stored && !s.task.State.Ended() {
			w.tellTask(ctx, "examples.txt", &s.task, "not ended")
		}
	}
	if n := len(w.work.refused); n > 0 {
		fmt.Fprintf(w.out, "%d tasks of the workload were refused, for instance: %v\n", n, w.work.refused[0])
		r.Refused += n
	}
	r.Workloads = append(r.Workloads, found)
	return nil
}

// Workshop serves the services of a workload to agents in other processes. Exported for net/rpc.
type Workshop struct{ services map[string]*mock.Service }

// Job is one call to a service of a workload.
type Job struct {
	Service, Key string
	Undo         bool
	Until        time.Time // the caller's own limit; zero: none
}

// What a service of a workload says, beside an error that is worth another try.
const (
	jobDone = iota
	jobRefused
	jobGone
	jobInProgress
	jobFailed
)

// Outcome is what the service said.
type Outcome struct {
	Kind   int
	Reason string
}

// Call serves one call.
func (k *Workshop) Call(job *Job, outcome *Outcome) error {
	service := k.services[job.Service]
	if service == nil {
		return fmt.Errorf("service %q: not one of this workload", job.Service)
	}
	ctx := context.Background()
	if !job.Until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, job.Until)
		defer cancel()
	}
	call := service.Do
	if job.Undo {
		call = service.Undo
	}
	err := call(ctx, job.Key)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, duly.ErrGone):
		outcome.Kind = jobGone
	case errors.Is(err, duly.ErrInProgress):
		outcome.Kind = jobInProgress
	case errors.Is(err, mock.ErrRefuses):
		outcome.Kind = jobRefused
	default:
		outcome.Kind = jobFailed
	}
	outcome.Reason = err.Error()
	return nil
}

// workshop is mock.Backend at a Workshop.
type workshop struct{ client *rpc.Client }

// Do implements mock.Backend.
func (k workshop) Do(ctx context.Context, service, key string) error {
	return k.call(ctx, &Job{Service: service, Key: key})
}

// Undo implements mock.Backend.
func (k workshop) Undo(ctx context.Context, service, key string) error {
	return k.call(ctx, &Job{Service: service, Key: key, Undo: true})
}

func (k workshop) call(ctx context.Context, job *Job) error {
	job.Until, _ = ctx.Deadline()
	call := k.client.Go("Workshop.Call", job, &Outcome{}, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return ctx.Err() // the call may still take effect
	case <-call.Done:
	}
	if call.Error != nil {
		return fmt.Errorf("services: %w", call.Error)
	}
	switch outcome := call.Reply.(*Outcome); outcome.Kind {
	case jobDone:
		return nil
	case jobRefused:
		return duly.Refuse(errors.New(outcome.Reason))
	case jobGone:
		return duly.ErrGone
	case jobInProgress:
		return duly.ErrInProgress
	default:
		return errors.New(outcome.Reason)
	}
}

// workPart are the settings of the agents of a workload.
type workPart struct {
	NATSURL, Desk, Workload string
}

// serveWork runs the agents of a workload in this process until it is told to end.
func serveWork(ctx context.Context, text string) error {
	var s workPart
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("part %s: %w", partWork, err)
	}
	client, err := rpc.Dial("unix", s.Desk)
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	defer client.Close()
	settings, err := settingsOf(0) // the faults are the services'
	if err != nil {
		return err
	}
	settings.Backend = workshop{client}
	return runAgent(ctx, s.NATSURL, func(nc *nats.Conn, options ...duly.AgentOption) (*duly.Agent, error) {
		agent, err := duly.NewAgent(nc, options...)
		if err != nil {
			return nil, err
		}
		return agent, workloads[s.Workload].build(settings).Serve(agent)
	})
}

// openWorkAgents starts two processes of agents of the workload.
func (w *world) openWorkAgents() error {
	for _, name := range []string{"work-a", "work-b"} {
		url, err := w.natsBehindLink(name, userAgents)
		if err != nil {
			return err
		}
		p, err := w.newPart(name, partWork, workPart{NATSURL: url, Desk: w.workSocket(), Workload: w.work.name})
		if err != nil {
			return err
		}
		w.agents = append(w.agents, p)
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) workSocket() string { return filepath.Join(w.dir, "work.sock") }

// byAgent are the books of the workload's services by the agents of the steps that make their effects, for a comparison
// as `duly books` makes it.
func (k *work) byAgent(ctx context.Context, store schema.Store) (map[string]duly.Books, error) {
	plans, err := store.Plans(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]duly.Books{}
	for i := range plans {
		for _, step := range plans[i].Steps {
			if service := k.example.Books()[plans[i].Name+"/"+step.Name]; service != nil {
				all[step.Agent] = workBooks{service, "/" + step.Name + "/"}
			}
		}
	}
	return all, nil
}

// workBooks are those of one service about one step.
type workBooks struct {
	service *mock.Service
	step    string // as it is in a key
}

// standing are the keys whose effects stand, in their order.
func (b workBooks) standing() (keys []string) {
	for _, key := range b.service.Standing() {
		if strings.Contains(key, b.step) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Since implements duly.Books, whatever the time: these books keep none. The place of a page is its first key.
func (b workBooks) Since(_ context.Context, _ time.Time, after string, limit int) (effects []duly.Effect, next string, err error) {
	for _, key := range b.standing() {
		if key < after {
			continue
		}
		if len(effects) == limit {
			return effects, key, nil
		}
		effects = append(effects, duly.Effect{Key: key, Times: b.service.Stands(key)})
	}
	return effects, "", nil
}

// Find implements duly.Books.
func (b workBooks) Find(_ context.Context, keys []string) (effects []duly.Effect, err error) {
	for _, key := range keys {
		if n := b.service.Stands(key); n > 0 {
			effects = append(effects, duly.Effect{Key: key, Times: n})
		}
	}
	return effects, nil
}
