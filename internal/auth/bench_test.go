package auth

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
)

// BenchmarkMiddleware is what authentication costs a request.
func BenchmarkMiddleware(b *testing.B) {
	for _, mode := range []Mode{Off, Token} {
		b.Run(string(mode), func(b *testing.B) {
			s := newShelf()
			a, err := New(Config{Mode: mode, Tokens: s, Log: silent})
			if err != nil {
				b.Fatal(err)
			}
			_, text, err := CreateToken(b.Context(), s, "shop", operate.RoleClient, "test", time.Now(), time.Time{})
			if err != nil {
				b.Fatal(err)
			}
			h := a.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r := httptest.NewRequest("PUT", "/v1/tasks/order/o-1", nil)
			r.Header.Set("Authorization", "Bearer "+text)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
