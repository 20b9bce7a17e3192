package dev_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"duly.dev/duly"
)

// TestPlanVersions: a task is of the version that its submitter names, and one that was never applied is refused, by each
// door in its way.
//
// covers: C5
func TestPlanVersions(t *testing.T) {
	w := start(t)
	c, err := duly.NewClient(w.nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	plans := map[int64]*duly.Plan[parcel]{}
	for version := range int64(3) {
		plans[version+1] = duly.NewPlan("versions", version+1, duly.NewCheck[parcel, int]("wait", "absent.versions", duly.Attempts(int(version+1))))
	}
	if err := errors.Join(plans[1].Apply(ctx, c), plans[2].Apply(ctx, c)); err != nil {
		t.Fatal(err)
	}
	version := func(id string) (v int64) {
		w.until(id+" is a task", func() bool {
			task, err := c.Get(ctx, "versions", id)
			v = task.PlanVersion
			return err == nil
		})
		return v
	}
	for _, v := range []int64{1, 2} { // an old binary's task stays one of its version
		id := string(rune('a' + v))
		if _, err := plans[v].Submit(ctx, c, id, parcel{1}); err != nil {
			t.Fatal(err)
		}
		if got := version(id); got != v {
			t.Errorf("submitted by version %d it is one of %d", v, got)
		}
	}
	if _, err := c.SubmitRaw(ctx, "versions", "newest", []byte(`{}`)); err != nil || version("newest") != 2 {
		t.Errorf("the newest is %d, %v", version("newest"), err)
	}
	_, err = plans[3].Submit(ctx, c, "never", parcel{1})
	refused, ok := errors.AsType[*duly.SubmitError](err)
	if !ok || refused.Code != 404 || !errors.Is(err, duly.ErrRefused) || !strings.Contains(err.Error(), "no plan of version 3") {
		t.Errorf("a version that was not applied: %v", err)
	}
	code, body := w.http("PUT", "/v1/tasks/versions/never", `{}`, map[string]string{"Duly-Plan-Version": "3"})
	if code != 404 || !strings.Contains(body, "no plan of version 3") {
		t.Errorf("by HTTP: %d %s", code, body)
	}
	if _, err := c.Get(ctx, "versions", "never"); !errors.Is(err, duly.ErrNotFound) {
		t.Errorf("it is a task: %v", err)
	}
}
