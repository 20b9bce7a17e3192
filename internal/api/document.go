package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/say"
)

// serveDocument makes the description of what is served and serves it to everyone: it names no task.
func (a *api) serveDocument() {
	a.document = sync.OnceValues(func() ([]byte, error) {
		data, err := json.Marshal(a.huma.OpenAPI())
		if err != nil {
			return nil, fmt.Errorf("description: %w", err)
		}
		var text bytes.Buffer
		err = json.Indent(&text, data, "", " ")
		return append(text.Bytes(), '\n'), err
	})
	a.mux.Handle("/openapi.json", methods{http.MethodGet: takes(func(w http.ResponseWriter, r *http.Request) {
		document, err := a.document()
		if err != nil {
			a.log.Error("the API cannot be described", "error", err)
			problem(w, ingest.Refuse(503, ingest.CauseNotServed, "%s", say.Of("refuse.no-description", "path", core.QuoteShort(r.URL.Path))))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(document) // an error is a client that went away
	})})
}
