package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"duly.dev/duly"
)

// errand is the input of a task of the load.
type errand struct{ Refused bool }

// receipt is what a step answers.
type receipt struct{ Key string }

// The plan of the load. Its steps are served on this machine, outside of the
// containers, through the port that is published.
var (
	pay  = duly.NewStep[errand, receipt]("pay", "errand.pay", stepLimits)
	pack = duly.NewStep[errand, receipt]("pack", "errand.pack", stepLimits)
	send = duly.NewStep[errand, receipt]("send", "errand.send", stepLimits)
	plan = duly.NewPlan("errand", 1, pay, pack, send)

	stepLimits = duly.CompleteBy(5 * time.Second)
)

var stepNames = []string{"pay", "pack", "send"}

// books are what the services behind the steps have on record, by key.
type books struct {
	mu       sync.Mutex
	standing map[string]bool // false: taken back, or never to be done
	made     map[string]int  // how often an effect was made
	accepted map[string]bool // ids that were promised an end
}

func newBooks() *books {
	return &books{standing: map[string]bool{}, made: map[string]int{}, accepted: map[string]bool{}}
}

var errTakenBack = errors.New("taken back before")

func (b *books) do(key string) (receipt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	stands, known := b.standing[key]
	switch {
	case known && !stands:
		return receipt{}, duly.Refuse(errTakenBack)
	case !known:
		b.standing[key] = true
		b.made[key]++
	}
	return receipt{key}, nil
}

func (b *books) undo(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.standing[key] = false
}

// serve performs the steps until ctx ends.
func (b *books) serve(ctx context.Context, nc *nats.Conn) error {
	agent, err := duly.NewAgent(nc)
	if err != nil {
		return err
	}
	undo := func(_ context.Context, u duly.Undo[errand, receipt]) error {
		b.undo(u.Key)
		return nil
	}
	do := func(_ context.Context, c duly.Call[errand]) (receipt, error) { return b.do(c.Key) }
	refuses := func(_ context.Context, c duly.Call[errand]) (receipt, error) {
		if c.Input.Refused {
			return receipt{}, duly.Refuse(errors.New("not sent on purpose"))
		}
		return b.do(c.Key)
	}
	if err := errors.Join(pay.Serve(agent, do, undo), pack.Serve(agent, do, undo), send.Serve(agent, refuses, undo)); err != nil {
		return err
	}
	return agent.Run(ctx)
}

// refuses holds for one id in thirty.
func refuses(id string) bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, id)
	return h.Sum32()%30 == 0
}

// acceptMax is how long one submission may be tried: longer than any trouble made
// here.
const acceptMax = 90 * time.Second

func (b *books) submit(ctx context.Context, client *duly.Client, id string) error {
	ctx, cancel := context.WithTimeout(ctx, acceptMax)
	defer cancel()
	if _, err := plan.Submit(ctx, client, id, errand{Refused: refuses(id)}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted[id] = true
	return nil
}

// burst submits n tasks as fast as they are taken.
func (b *books) burst(ctx context.Context, client *duly.Client, prefix string, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i := range n {
		group.Go(func() error { return b.submit(ctx, client, fmt.Sprintf("%s-%d", prefix, i)) })
	}
	return group.Wait()
}

// loadRate is the tasks of a steady load, a second.
const loadRate = 50

// load submits steadily while work is done, and waits until all was taken.
func (b *books) load(ctx context.Context, client *duly.Client, prefix string, work func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		pause(ctx, time.Second) // some are under way before anything happens
		return work(ctx)
	})
	group.Go(func() error {
		tick := time.NewTicker(time.Second / loadRate)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return nil
			case <-tick.C:
				group.Go(func() error { return b.submit(ctx, client, fmt.Sprintf("%s-%d", prefix, i)) })
			}
		}
	})
	return group.Wait()
}

// task is what the API says.
type task struct {
	ID, State, Reason string
	Steps             []struct{ Name, Status string }
}

var web = &http.Client{Timeout: 10 * time.Second}

// call makes one request and decodes a good answer.
func call(ctx context.Context, method, target, kind, body string, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := web.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, target, resp.Status, tail(string(text)))
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			return resp.StatusCode, fmt.Errorf("%s %s: %w", method, target, err)
		}
	}
	return resp.StatusCode, nil
}

// tasks reads every task of a type.
func tasks(ctx context.Context, base, typ string) (map[string]task, error) {
	all := map[string]task{}
	for after := ""; ; {
		var page struct {
			Tasks []task
			Next  string
		}
		if _, err := call(ctx, http.MethodGet, base+"/v1/tasks?limit=1000&type="+typ+"&after="+url.QueryEscape(after), "", "", &page); err != nil {
			return nil, err
		}
		for _, t := range page.Tasks {
			all[t.ID] = t
		}
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

func ended(state string) bool { return state == "processed" || state == "undone" || state == "error" }

// close holds when every accepted task has ended, and what the services have on
// record is what Duly says of each step.
func (b *books) close(ctx context.Context, base string) error {
	found, err := tasks(ctx, base, plan.Name())
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.accepted {
		t, ok := found[id]
		if !ok {
			return fmt.Errorf("task %s was accepted, and is lost", id)
		}
		if !ended(t.State) {
			return fmt.Errorf("task %s is %s", id, t.State)
		}
	}
	for id, t := range found {
		if !b.accepted[id] {
			return fmt.Errorf("task %s is there, but was not accepted", id)
		}
		if err := b.agrees(t); err != nil {
			return err
		}
	}
	return nil
}

func (b *books) agrees(t task) error {
	want := map[string]bool{"processed": true, "undone": false}
	stands, ok := want[t.State]
	if !ok || refuses(t.ID) && stands {
		return fmt.Errorf("task %s is %s: %s", t.ID, t.State, t.Reason)
	}
	for _, step := range stepNames {
		for round := range 2 {
			key := fmt.Sprintf("%s/%s/%d", t.ID, step, round)
			if b.made[key] > 1 {
				return fmt.Errorf("task %s: the effect of %s was made %d times", t.ID, step, b.made[key])
			}
			if round == 0 && b.standing[key] != stands {
				return fmt.Errorf("task %s is %s, and the effect of %s stands: %t", t.ID, t.State, step, b.standing[key])
			}
		}
	}
	for _, step := range t.Steps {
		if done := step.Status == "done"; done != stands {
			return fmt.Errorf("task %s is %s, and its step %s is %s", t.ID, t.State, step.Name, step.Status)
		}
	}
	return nil
}
