package telemetry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"duly.dev/duly/internal/core"
)

// levelBody is the body of a request for another level, and of the answer.
type levelBody struct {
	Level string `json:"level"`
}

// levelBytesMax bounds the body of a request.
const levelBytesMax = 256

// LevelHandler answers GET with the level of the log, and PUT by changing it, until the process ends. Who may do so is
// its caller's to check.
func LevelHandler(level *slog.LevelVar) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			var body levelBody
			d := json.NewDecoder(http.MaxBytesReader(w, r.Body, levelBytesMax))
			d.DisallowUnknownFields()
			if err := d.Decode(&body); err != nil {
				problem(w, fmt.Sprintf("level: want a body such as {\"level\":\"debug\"}: %v", err))
				return
			}
			to, err := ParseLevel(body.Level)
			if err != nil {
				problem(w, err.Error())
				return
			}
			level.Set(to)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		data, err := json.Marshal(levelBody{strings.ToLower(level.Level().String())})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(append(data, '\n')) // an error is a client that went away
	}
}

// ParseLevel reads debug, info, warn or error.
func ParseLevel(text string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(text, l.String()) {
			return l, nil
		}
	}
	return 0, fmt.Errorf("level: %s, want debug, info, warn or error", core.QuoteShort(text))
}

// problem answers with a problem document (RFC 9457).
func problem(w http.ResponseWriter, detail string) {
	const code = http.StatusBadRequest
	data, err := json.Marshal(map[string]any{"type": "about:blank", "title": http.StatusText(code), "status": code, "detail": detail})
	if err != nil {
		data = nil // texts and numbers always marshal
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}
