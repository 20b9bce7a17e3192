// Package health answers whether a process lives and whether it can work, for
// container checks and load balancers. Every role serves it.
package health

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"duly.dev/duly/internal/redact"
)

// The paths that [Handler] serves.
const (
	pathLive  = "/healthz" // 200 unless only a restart helps, else 503
	PathReady = "/readyz"  // 200 when the process can work, else 503
)

// Failure is a condition that does not hold. Name says nothing of addresses or accounts; the rest may.
type Failure struct {
	Name   string
	Key    string // the resource, where the condition has several
	Text   string
	Reason string
	Since  time.Time
	Times  int
}

// Source knows what does not hold.
type Source interface {
	Ready() []Failure // what keeps the process from working
	Live() []Failure  // what only a restart helps against
}

// status is the body of both answers.
type status struct {
	Status  string    `json:"status"`
	Failing []failing `json:"failing,omitempty"`
}

// failing is a failure as it is shown: to strangers only its name.
type failing struct {
	Name  string `json:"name"`
	Key   string `json:"key,omitempty"`
	What  string `json:"what,omitempty"`
	Error string `json:"error,omitempty"`
	Since string `json:"since,omitempty"`
	For   string `json:"for,omitempty"`
	Times int    `json:"times,omitempty"` // of a condition that comes and goes
}

// Handler serves pathLive and PathReady. Error texts and all else that may name hosts, accounts or nodes are for callers
// on this machine.
func Handler(source Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(pathLive, func(w http.ResponseWriter, r *http.Request) { answer(w, r, "alive", "not alive", source.Live()) })
	mux.HandleFunc(PathReady, func(w http.ResponseWriter, r *http.Request) { answer(w, r, "ready", "not ready", source.Ready()) })
	return mux
}

// isLocal reports whether a request comes from this machine and not through a proxy on it: the address of whom a proxy
// speaks for is in a header.
func isLocal(r *http.Request) bool {
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

func answer(w http.ResponseWriter, r *http.Request, well, unwell string, failures []Failure) {
	code, body := http.StatusOK, status{Status: well}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		code, body = http.StatusMethodNotAllowed, status{Status: "method not allowed"}
	case len(failures) > 0:
		code, body = http.StatusServiceUnavailable, status{Status: unwell, Failing: shown(failures, isLocal(r))}
	}
	data, err := json.Marshal(body)
	if err != nil {
		code, data = http.StatusInternalServerError, nil // strings always marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // an error is a client that went away
}

// shown is what a caller sees of failures.
func shown(failures []Failure, details bool) []failing {
	var all []failing
	for i := range failures {
		f := &failures[i]
		if !details {
			if len(all) == 0 || all[len(all)-1].Name != f.Name { // resources of one condition stand together
				all = append(all, failing{Name: f.Name})
			}
			continue
		}
		one := failing{Name: f.Name, Key: f.Key, What: f.Text, Error: redact.Text(f.Reason),
			Since: f.Since.UTC().Format(time.RFC3339Nano), For: time.Since(f.Since).Round(100 * time.Millisecond).String()}
		if f.Times > 1 {
			one.Times = f.Times
		}
		all = append(all, one)
	}
	return all
}
