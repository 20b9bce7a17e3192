package duly_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/core"
)

// covers: C3
func TestGet(t *testing.T) {
	r := newRig(t)
	at := core.Instant(1_800_000_000_000_000)
	r.views["a"] = core.View{
		ID: "a", Type: "order", PlanVersion: 3, Partition: 5, State: core.StateUndone, Reason: "no drone", FailedStep: "ship", Failures: 2,
		CompleteBy: at + 1, CreatedAt: at + 2, UpdatedAt: at + 3, EndedAt: at + 4, Input: []byte(`{"Cents":7}`),
		Steps: []core.StepView{{Name: "ship", Agent: "parcel.send", Status: "undone", Attempt: 2, Code: 500, Error: "no drone", Result: []byte(`{"x":"<"}`), At: at}},
	}
	task, err := r.Get(t.Context(), "order", "a")
	if err != nil {
		t.Fatal(err)
	}
	want := duly.Task{
		ID: "a", Type: "order", PlanVersion: 3, Partition: 5, State: duly.StateUndone, Reason: "no drone", FailedStep: "ship", Failures: 2,
		CompleteBy: (at + 1).Time(), CreatedAt: (at + 2).Time(), UpdatedAt: (at + 3).Time(), EndedAt: (at + 4).Time(), Input: []byte(`{"Cents":7}`),
		Steps: []duly.TaskStep{{Name: "ship", Agent: "parcel.send", Status: "undone", Attempt: 2, Code: 500, Error: "no drone", Result: []byte(`{"x":"<"}`), At: at.Time()}},
	}
	if got, want := fmt.Sprintf("%+v", task), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	for _, other := range [][2]string{{"order", "b"}, {"parcel", "a"}} {
		_, err := r.Get(t.Context(), other[0], other[1])
		if !errors.Is(err, duly.ErrNotFound) || errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), "get task "+other[1]+" of type "+other[0]+": not found") {
			t.Errorf("%v: %v", other, err)
		}
	}
	if _, err := r.Get(t.Context(), "order", "a b"); !errors.Is(err, duly.ErrRefused) {
		t.Errorf("a name that cannot be: %v", err)
	}
}

// What a node shows of a step a client gets, but for what the plan says and the counts of children.
//
// covers: C3
func TestGetHasAllOfAStep(t *testing.T) {
	r := newRig(t)
	var shown core.StepView
	all := reflect.ValueOf(&shown).Elem()
	for i := range all.NumField() {
		switch f := all.Field(i); f.Interface().(type) {
		case []byte:
			f.SetBytes([]byte(`1`))
		case core.ChildCounts:
		case core.Tries:
			f.Set(reflect.ValueOf(core.Tries{Attempt: 7, Code: 7, Error: "x", At: 7, By: "x"}))
		case bool:
			f.SetBool(true)
		case int, core.Instant:
			f.SetInt(7)
		default:
			f.SetString("x")
		}
	}
	r.views["a"] = core.View{ID: "a", Type: "order", State: core.StateProcessing, Steps: []core.StepView{shown}}
	task, err := r.Get(t.Context(), "order", "a")
	if err != nil {
		t.Fatal(err)
	}
	got := reflect.ValueOf(task.Steps[0])
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		if slices.Contains([]string{"Kind", "Child", "Count", "When", "Optional", "Children", "Due"}, name) {
			continue
		}
		if f := got.FieldByName(name); !f.IsValid() || f.IsZero() {
			t.Errorf("a TaskStep has no %s", name)
		}
	}
}

// covers: C3
func TestListPages(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		id := fmt.Sprint("t", i)
		r.views[id] = core.View{ID: id, Type: "order", State: core.StateProcessed, CreatedAt: 1}
	}
	r.views["u"] = core.View{ID: "u", Type: "parcel", State: core.StateError, CreatedAt: 1}
	var got []string
	filter := duly.Filter{Type: "order", State: duly.StateProcessed, Limit: 2}
	for pages := 1; ; pages++ {
		page, err := r.List(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Tasks) > 2 {
			t.Errorf("%d tasks on a page", len(page.Tasks))
		}
		for _, task := range page.Tasks {
			got = append(got, task.ID)
		}
		if filter.After = page.Next; filter.After == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if want := "[t0 t1 t2 t3 t4]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	all, err := r.List(t.Context(), duly.Filter{})
	if err != nil || len(all.Tasks) != 6 || all.Next != "" {
		t.Errorf("all: %+v, %v", all, err)
	}
	for want, filter := range map[string]duly.Filter{
		"limit is 1001, want 1 to 1000": {Limit: 1001}, "limit is -1": {Limit: -1}, `state is "refused"`: {State: duly.StateRefused},
		`type "a b"`: {Type: "a b"}, "cursor has 600 bytes, the limit is 512": {After: strings.Repeat("x", 600)},
	} {
		if _, err := r.List(t.Context(), filter); !errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", filter, err, want)
		}
	}
}

// While no node answers, reading lasts as long as its context.
func TestReadsEndWithTheirContext(t *testing.T) {
	r := newRig(t)
	r.conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err1 := r.Get(ctx, "order", "a")
	_, err2 := r.List(ctx, duly.Filter{})
	for _, err := range []error{err1, err2} {
		if !errors.Is(err, duly.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
}

// No error of a client says the same twice.
//
// covers: C15
func TestErrorsSayThingsOnce(t *testing.T) {
	r := newRig(t)
	_, err1 := r.SubmitRaw(t.Context(), "order", "a b", []byte("{}"))
	_, err2 := r.SubmitRaw(t.Context(), "order", "a", []byte("{"))
	_, err3 := r.SubmitRaw(t.Context(), "parcel", "a", []byte("{}"))
	_, err4 := r.Get(t.Context(), "order", "none")
	err5 := r.Cancel(t.Context(), "order", "", "")
	err6 := Buy.With(duly.Grace(-1)).Apply(t.Context(), r.Client)
	_, err7 := r.List(t.Context(), duly.Filter{Limit: -1})
	_, err8 := Buy.With(duly.Grace(-1)).Submit(t.Context(), r.Client, "a", Order{})
	for _, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8} {
		if err == nil {
			t.Error("no error")
			continue
		}
		parts := map[string]bool{}
		for part := range strings.SplitSeq(err.Error(), ": ") {
			for _, verb := range []string{"submit ", "get ", "apply ", "cancel "} {
				part = strings.TrimPrefix(part, verb)
			}
			if parts[part] {
				t.Errorf("%q is said twice in: %v", part, err)
			}
			parts[part] = true
		}
	}
}
