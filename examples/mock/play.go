package mock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"duly.dev/duly"
)

// Ref names a task.
type Ref struct{ Type, ID string }

// Example is one of the examples, as its program and its test play it.
type Example interface {
	// Serve has an agent perform all steps.
	Serve(agent *duly.Agent) error
	// Apply stores all plans, those of children first.
	Apply(ctx context.Context, client *duly.Client) error
	// Submit hands in the task of a number, and says what people say to it, if they are asked.
	Submit(ctx context.Context, client *duly.Client, number int) (Ref, error)
	// Children are the tasks that a task may have.
	Children(of Ref) []Ref
	// Books are the services of the steps that leave something behind.
	Books() Books
}

// Report is how the tasks of a play came out.
type Report struct {
	Accepted, Processed, Undone, Error int
	Lost                               int // accepted and never ended
	Doubled                            int // effects made twice
	HalfDone                           int // tasks whose effects are not what Duly says of them
	Wrong                              []string
}

// Clean reports whether every task ended as a whole.
func (r *Report) Clean() bool { return r.Lost+r.Doubled+r.HalfDone+r.Error == 0 }

// Print writes the report.
func (r *Report) Print(w io.Writer) {
	for _, line := range []struct {
		what  string
		count int
	}{{"accepted", r.Accepted}, {"processed", r.Processed}, {"undone", r.Undone}, {"error", r.Error}, {"lost", r.Lost}, {"doubled", r.Doubled}, {"half-done", r.HalfDone}} {
		fmt.Fprintf(w, "%-12s %8d\n", line.what, line.count)
	}
	for _, wrong := range r.Wrong {
		fmt.Fprintln(w, wrong)
	}
}

// Bounds of a play.
const (
	togetherMax = 64  // tasks that are followed at a time
	wrongMax    = 100 // lines about what is wrong
)

// Play serves the example, submits so many tasks and follows each to its end, which must come within a time; then it
// compares the books. Error: the connection, or what is refused.
func Play(ctx context.Context, nc *nats.Conn, namespace string, example Example, tasks int, within time.Duration, log *slog.Logger) (*Report, error) {
	agent, err := duly.NewAgent(nc, duly.Namespace(namespace), duly.Log(log))
	if err != nil {
		return nil, err
	}
	if err := example.Serve(agent); err != nil {
		return nil, err
	}
	client, err := duly.NewClient(nc, duly.Namespace(namespace), duly.Actor("example"))
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- agent.Run(serving) }()
	report, err := play(ctx, client, example, tasks, within)
	stop()
	return report, errors.Join(err, <-served)
}

func play(ctx context.Context, client *duly.Client, example Example, tasks int, within time.Duration) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := example.Apply(ctx, client); err != nil {
		return nil, err
	}
	report := &Report{}
	refs := make([]Ref, 0, tasks)
	var mu sync.Mutex // of report and refs
	group, following := errgroup.WithContext(ctx)
	group.SetLimit(togetherMax)
	for number := range tasks {
		group.Go(func() error {
			ref, err := example.Submit(following, client, number)
			if err != nil {
				return err
			}
			state, err := follow(following, client, ref)
			mu.Lock()
			defer mu.Unlock()
			refs = append(refs, ref)
			report.Accepted++
			switch state {
			case duly.StateProcessed:
				report.Processed++
			case duly.StateUndone:
				report.Undone++
			case duly.StateError:
				report.Error++
			default:
				report.Lost++
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return report, err
	}
	return report, report.compare(ctx, client, example, refs)
}

// follow waits for the end of a task.
func follow(ctx context.Context, client *duly.Client, ref Ref) (duly.State, error) {
	for status, err := range client.Watch(ctx, ref.Type, ref.ID) {
		if err != nil {
			return "", err
		}
		if status.State.Ended() {
			return status.State, nil
		}
	}
	return "", fmt.Errorf("task %s of type %s: no end was told", ref.ID, ref.Type)
}

// compare compares the books with what Duly says of tasks and their children, and adds what is wrong to the report.
func (r *Report) compare(ctx context.Context, client *duly.Client, example Example, refs []Ref) error {
	for len(refs) > 0 {
		ref := refs[0]
		refs = append(refs[1:], example.Children(ref)...)
		task, err := client.Get(ctx, ref.Type, ref.ID)
		if errors.Is(err, duly.ErrNotFound) {
			continue // a child that was never born
		}
		if err != nil {
			return err
		}
		wrong, doubled := example.Books().Wrong(&task)
		r.Doubled += doubled
		if len(wrong) > 0 {
			r.HalfDone++
		}
		r.Wrong = append(r.Wrong, wrong[:min(len(wrong), wrongMax-len(r.Wrong))]...)
	}
	return nil
}
