package telemetry

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// requestBounds are the bounds of how long answers over HTTP take.
var requestBounds = []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 10 * time.Second}

// HTTP counts requests. The zero value is ready.
type HTTP struct {
	mu  sync.Mutex
	all map[[2]string]*times // by route and code
}

// Around counts the requests that a mux serves, by the pattern that it finds, or that a mux below it does: see Below.
func (h *HTTP) Around(mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, told, below := time.Now(), &telling{ResponseWriter: w, code: http.StatusOK}, ""
		r = r.WithContext(context.WithValue(r.Context(), belowKey{}, &below))
		defer func() {
			if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
				return // it lasts as long as somebody listens
			}
			h.count(cmp.Or(below, r.Pattern), told.code, time.Since(began))
		}()
		mux.ServeHTTP(told, r)
	})
}

// belowKey is where the context of a request has the pattern of a mux below.
type belowKey struct{}

// Below has the requests that a mux serves below another counted by its own patterns: what stands between them passes on copies
// of the request, on which the other does not see them.
func Below(mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if below, ok := r.Context().Value(belowKey{}).(*string); ok {
				*below = r.Pattern
			}
		}()
		mux.ServeHTTP(w, r)
	})
}

func (h *HTTP) count(route string, code int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	key := [2]string{route, strconv.Itoa(code)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[[2]string]*times{}
	}
	if h.all[key] == nil && len(h.all) >= typesMax {
		key = [2]string{typeOther, typeOther}
	}
	if h.all[key] == nil {
		h.all[key] = &times{Bounds: requestBounds, Counts: make([]int64, len(requestBounds)+1)}
	}
	h.all[key].add(took)
}

// Metrics tells the counts.
func (h *HTTP) Metrics(to *Scrape) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, t := range h.all {
		to.Times("duly_http_request_seconds", t.Bounds, t.Counts, t.Sum, key[0], key[1])
	}
}

// telling is an http.ResponseWriter that tells the code of the answer.
type telling struct {
	http.ResponseWriter
	code int
	told bool
}

// WriteHeader implements http.ResponseWriter.
func (t *telling) WriteHeader(code int) {
	if code >= http.StatusOK && !t.told { // what is below is not the answer yet
		t.code, t.told = code, true
	}
	t.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (t *telling) Write(data []byte) (int, error) {
	t.told = true
	return t.ResponseWriter.Write(data)
}

// Unwrap is for http.ResponseController.
func (t *telling) Unwrap() http.ResponseWriter { return t.ResponseWriter }
