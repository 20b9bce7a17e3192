package node

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/operate"
)

// signIn shows a token to the page for signing in.
func signIn(handler http.Handler, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", auth.PathSignIn, strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// TestSessionsOfAToken: a token opens few sessions, whatever it is used for, and keeps no one else out; a service's opens
// none. They end when it is revoked, and at its own end.
//
// covers: P5
func TestSessionsOfAToken(t *testing.T) {
	n, _, handler := faced(t, nil)
	tokens := n.store.(operate.TokenStore)
	service := tokenOf(t, n, operate.RoleClient)
	for range 3 {
		if w := signIn(handler, service); w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
			t.Errorf("a service signs in: %d %v", w.Code, w.Result().Cookies())
		}
	}
	one, text, err := auth.CreateToken(t.Context(), tokens, "vera", operate.RoleViewer, "test", n.now(), n.now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var first *http.Cookie
	for i := range operate.SessionsEach {
		w := signIn(handler, text)
		if w.Code != http.StatusSeeOther || len(w.Result().Cookies()) != 1 {
			t.Fatalf("session %d: %d %s", i+1, w.Code, w.Body)
		}
		if first = w.Result().Cookies()[0]; first.Expires.After(one.Expires.Add(time.Second)) {
			t.Errorf("a session until %v of a token until %v", first.Expires, one.Expires)
		}
	}
	if w := signIn(handler, text); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "sign out of one of them") {
		t.Errorf("one session more: %d %s", w.Code, w.Body)
	}
	if w := signIn(handler, tokenOf(t, n, operate.RoleViewer)); w.Code != http.StatusSeeOther {
		t.Errorf("another token: %d %s", w.Code, w.Body)
	}
	out := httptest.NewRequest("POST", auth.PathSignOut, nil)
	out.AddCookie(first)
	handler.ServeHTTP(httptest.NewRecorder(), out)
	if w := signIn(handler, text); w.Code != http.StatusSeeOther {
		t.Errorf("after signing out of one: %d %s", w.Code, w.Body)
	}
	if err := tokens.RevokeToken(t.Context(), one.ID, n.now()); err != nil {
		t.Fatal(err)
	}
	for i := range operate.SessionsEach { // there is room for as many: none of them is left
		session := operate.Session{ID: fmt.Sprint(i), Owner: one.ID, Data: []byte("x"), Expires: n.now().Add(time.Hour)}
		if err := n.store.(operate.SessionStore).PutSession(t.Context(), session, n.now()); err != nil {
			t.Fatal(err)
		}
	}
}
