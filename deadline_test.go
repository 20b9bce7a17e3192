package duly

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type valueKey struct{}

// What package context promises of a context with a deadline, asked of ours and
// of the original alike.
func TestDeadlineIsAContext(t *testing.T) {
	makers := map[string]func(context.Context, time.Time) (context.Context, context.CancelFunc){
		"ours": withDeadline, "the original": context.WithDeadline,
	}
	cases := []struct {
		name string
		end  func(cancelParent, cancel func())
		want error
	}{
		{"by the clock", func(func(), func()) { <-time.After(time.Minute) }, context.DeadlineExceeded},
		{"cancelled", func(_, cancel func()) { cancel() }, context.Canceled},
		{"with the parent", func(cancelParent, _ func()) { cancelParent() }, context.Canceled},
		{"both, the first counts", func(cancelParent, cancel func()) { <-time.After(time.Minute + 1); cancel(); cancelParent() }, context.DeadlineExceeded},
	}
	for who, with := range makers {
		for _, c := range cases {
			for _, asked := range []string{"done first", "err only", "child"} {
				t.Run(who+"/"+c.name+"/"+asked, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						parent, cancelParent := context.WithCancel(context.WithValue(t.Context(), valueKey{}, 7))
						defer cancelParent()
						at := time.Now().Add(time.Minute)
						ctx, cancel := with(parent, at)
						defer cancel()
						if got, ok := ctx.Deadline(); !ok || !got.Equal(at) || ctx.Value(valueKey{}) != 7 || ctx.Err() != nil {
							t.Fatalf("deadline %v %v, value %v, err %v", got, ok, ctx.Value(valueKey{}), ctx.Err())
						}
						var child context.Context
						switch asked {
						case "done first":
							select {
							case <-ctx.Done():
								t.Fatal("ended at once")
							default:
							}
						case "child":
							var cancelChild context.CancelFunc
							child, cancelChild = context.WithCancel(ctx)
							defer cancelChild()
						}
						c.end(cancelParent, cancel)
						synctest.Wait()
						if !errors.Is(ctx.Err(), c.want) {
							t.Errorf("err %v, want %v", ctx.Err(), c.want)
						}
						<-ctx.Done()
						if child != nil {
							<-child.Done()
							if !errors.Is(child.Err(), c.want) {
								t.Errorf("child's err %v, want %v", child.Err(), c.want)
							}
						}
					})
				})
			}
		}
	}
}

func TestDeadlineOfTheParentBinds(t *testing.T) {
	parent, cancelParent := context.WithTimeout(t.Context(), time.Hour)
	defer cancelParent()
	ctx, cancel := withDeadline(parent, time.Now().Add(2*time.Hour))
	defer cancel()
	want, _ := parent.Deadline()
	if got, _ := ctx.Deadline(); !got.Equal(want) {
		t.Errorf("deadline %v, want the parent's %v", got, want)
	}
}

func TestDeadlineCallsAfterFuncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := withDeadline(t.Context(), time.Now().Add(time.Minute))
		calls := make(chan string, 3)
		context.AfterFunc(ctx, func() { calls <- "kept" })
		stop := context.AfterFunc(ctx, func() { calls <- "stopped" })
		if !stop() || stop() {
			t.Error("a function is stopped once")
		}
		cancel()
		synctest.Wait()
		context.AfterFunc(ctx, func() { calls <- "late" })
		synctest.Wait()
		if len(calls) != 2 || <-calls != "kept" || <-calls != "late" {
			t.Error("want the function that was kept, then the late one")
		}
	})
}
