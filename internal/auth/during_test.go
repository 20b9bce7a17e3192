package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"duly.dev/duly/internal/operate"
)

// TestLastingRequestEnds: a request that lasts ends within seconds of its token or its session, whichever way that ends, and
// says so; one whose token holds, or cannot be looked at, goes on.
//
// covers: P8
func TestLastingRequestEnds(t *testing.T) {
	for name, end := range map[string]func(s *shelf, token operate.Token, signOut func()){
		"revoked": func(s *shelf, token operate.Token, _ func()) {
			_ = s.RevokeToken(context.Background(), token.ID, time.Now())
		},
		"expired":    nil, // by itself
		"signed out": func(_ *shelf, _ operate.Token, signOut func()) { signOut() },
		"another role": func(s *shelf, token operate.Token, _ func()) {
			token.Role = operate.RoleViewer
			_ = s.PutToken(context.Background(), token)
		},
	} {
		for _, bySession := range []bool{true, false} {
			if name == "signed out" && !bySession {
				continue
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { lasting(t, bySession, end) })
			})
		}
	}
}

func lasting(t *testing.T, bySession bool, end func(*shelf, operate.Token, func())) {
	s := newShelf()
	a, err := New(Config{Mode: Token, Tokens: s, Sessions: newSessionShelf(), Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	a.Mount(mux)
	var cause error
	var took time.Duration
	mux.Handle("/", a.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		<-r.Context().Done()
		cause, took = context.Cause(r.Context()), time.Since(begun)
	})))
	token, text, err := CreateToken(t.Context(), s, "olga", operate.RoleOperator, "test", time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/events", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	signOut := func() {}
	if bySession {
		w := httptest.NewRecorder()
		if err := a.begin(w, r, token.ID, token.Expires, map[string]string{"token": token.ID}); err != nil {
			t.Fatal(err)
		}
		r.Header.Del("Authorization")
		r.AddCookie(w.Result().Cookies()[0])
		signOut = func() {
			out := httptest.NewRequest("POST", PathSignOut, nil)
			out.AddCookie(w.Result().Cookies()[0])
			mux.ServeHTTP(httptest.NewRecorder(), out)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}()
	want := time.Hour
	if end != nil {
		pause := time.NewTimer(30 * time.Minute)
		select {
		case <-ended:
			t.Fatalf("it ended after %v: %v", took, cause)
		case <-pause.C:
		}
		s.mu.Lock()
		s.err = errors.New("away")
		s.mu.Unlock()
		pause.Reset(time.Minute)
		select {
		case <-ended:
			t.Fatalf("it ended while the store was away: %v", cause)
		case <-pause.C:
		}
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		end(s, token, signOut)
		want = 31 * time.Minute
	}
	<-ended
	if !errors.Is(cause, operate.ErrEnded) || took < want || took > want+2*lookAgain {
		t.Errorf("it ended after %v, want %v: %v", took, want, cause)
	}
}
