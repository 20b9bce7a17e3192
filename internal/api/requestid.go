package api

import (
	"net/http"

	"github.com/nats-io/nuid"

	"duly.dev/duly/internal/operate"
)

// headerRequest names a request in answers, in the log and in the audit trail.
const headerRequest = "X-Request-Id"

const requestIDMax = 64

// WithRequestID gives each request an id: the sender's, if it is one of 1 to 64 letters, digits, dots, dashes and
// underscores, or a new one.
func WithRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(headerRequest)
		if len(id) > requestIDMax || checkID("", id) != nil {
			id = nuid.Next()
		}
		w.Header().Set(headerRequest, id)
		next.ServeHTTP(w, r.WithContext(operate.WithRequest(r.Context(), id)))
	})
}
