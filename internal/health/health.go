// Package health answers whether a process lives and whether it can work, for
// container checks and load balancers. Every role serves it.
package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"duly.dev/duly/internal/redact"
)

// The paths that [Handler] serves.
const (
	PathLive  = "/healthz" // 200 while the process answers at all
	PathReady = "/readyz"  // 200 when every check passes, else 503
)

// ProbesMax is how long all checks of one request may take together.
const ProbesMax = 2 * time.Second

// Check is one thing a process needs to do its work.
type Check struct {
	Name string
	// Probe returns nil when all is well. It must return soon after ctx ends and
	// may be called several times at once.
	Probe func(ctx context.Context) error
}

// Failure is a check that did not pass.
type Failure struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

// status is the body of both answers.
type status struct {
	Status  string    `json:"status"`
	Failing []Failure `json:"failing,omitempty"`
}

// Handler serves PathLive and PathReady. A process that is alive but cannot work
// is not ready; restarting it would not help, so it stays alive.
func Handler(checks ...Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(PathLive, func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, http.StatusOK, status{Status: "alive"})
	})
	mux.HandleFunc(PathReady, func(w http.ResponseWriter, r *http.Request) {
		if failing := Probe(r.Context(), checks); len(failing) > 0 {
			answer(w, r, http.StatusServiceUnavailable, status{Status: "not ready", Failing: failing})
			return
		}
		answer(w, r, http.StatusOK, status{Status: "ready"})
	})
	return mux
}

// Probe runs all checks side by side, for at most ProbesMax, and returns those
// that fail in the order given.
func Probe(ctx context.Context, checks []Check) []Failure {
	ctx, cancel := context.WithTimeout(ctx, ProbesMax)
	defer cancel()
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { errs[i] = probe(ctx, c) })
	}
	wg.Wait()
	var failing []Failure
	for i, err := range errs {
		if err != nil {
			failing = append(failing, Failure{Name: checks[i].Name, Error: redact.Text(err.Error())})
		}
	}
	return failing
}

// probe keeps a check that panics from taking the process down.
func probe(ctx context.Context, c Check) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the check panicked: %v", v)
		}
	}()
	return c.Probe(ctx)
}

func answer(w http.ResponseWriter, r *http.Request, code int, body status) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		code, body = http.StatusMethodNotAllowed, status{Status: "method not allowed"}
	}
	data, err := json.Marshal(body)
	if err != nil {
		code, data = http.StatusInternalServerError, nil // strings always marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// An error here is a client that went away: there is nobody left to tell.
	_, _ = w.Write(append(data, '\n'))
}
