package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/replay"
)

// fileRoute is one task as one file, whose form is that of package replay.
func (a *api) fileRoute() {
	described[TaskIn, body[map[string]any]](a, route{method: http.MethodGet, path: "/v1/tasks/{type}/{id}/export", id: "exportTask", tag: "tasks", needs: operate.RoleViewer,
		summary: "One task with its plan and journal, as a file that duly replay opens"}, takes(a.file), nil)
}

func (a *api) file(w http.ResponseWriter, r *http.Request) {
	taskType, id, bad := names(r)
	if bad != nil {
		problem(w, bad)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.ReadMax)
	defer cancel()
	data, err := a.taskFile(ctx, taskType, id)
	if refused, ok := errors.AsType[*ingest.Refusal](err); ok {
		problem(w, refused)
		return
	}
	if err != nil {
		a.storeFailed(w, r, "the task could not be read", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%s.json"`, taskType, id))
	_, _ = w.Write(data) // the client is gone if it cannot be written
}

// taskFile reads a task with its journal and its plan.
func (a *api) taskFile(ctx context.Context, taskType, id string) ([]byte, error) {
	view, err := a.known(ctx, taskType, id)
	if err != nil {
		return nil, err
	}
	saved, err := a.saved(ctx, &view)
	if err != nil {
		return nil, err
	}
	plan, err := a.planOf(ctx, view.Type, view.PlanVersion)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", id, err)
	}
	return replay.Encode(plan, saved)
}
