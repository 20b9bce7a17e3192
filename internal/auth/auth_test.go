package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"
	"go.uber.org/goleak"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var silent = slog.New(slog.DiscardHandler)

// shelf is a store of tokens in memory.
type shelf struct {
	mu      sync.Mutex
	all     map[string]operate.Token
	reads   int
	lists   int
	touches int
	err     error
}

func newShelf() *shelf { return &shelf{all: map[string]operate.Token{}} }

func (s *shelf) PutToken(_ context.Context, t operate.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[t.ID] = t
	return s.err
}

func (s *shelf) TokenByID(_ context.Context, id string) (operate.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return operate.Token{}, s.err
	}
	t, ok := s.all[id]
	if !ok {
		return t, fmt.Errorf("token: %w", core.ErrNotFound)
	}
	return t, nil
}

func (s *shelf) Tokens(context.Context) ([]operate.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	return slices.Collect(maps.Values(s.all)), s.err
}

func (s *shelf) RevokeToken(_ context.Context, id string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.all[id]
	t.Revoked = at
	s.all[id] = t
	return nil
}

func (s *shelf) TouchToken(_ context.Context, id string, at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touches++
	t := s.all[id]
	t.LastUsed = at
	s.all[id] = t
	return nil
}

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// whoami answers who the actor is.
var whoami = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	actor, ok := operate.ActorFrom(r.Context())
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(w).Encode(actor)
})

func ask(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestTokens: a token is its holder's name and role; what does not hold is refused, whatever is wrong with it, and the
// store has no secret.
//
// covers: OP17
func TestTokens(t *testing.T) {
	s, c := newShelf(), newClock()
	a, err := New(Config{Mode: Token, Tokens: s, Sessions: newSessionShelf(), Now: c.now, Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	h := a.Middleware(whoami)
	token, text, err := CreateToken(t.Context(), s, "shop", operate.RoleClient, "test", c.now(), c.now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if kept, _ := json.Marshal(s.all[token.ID]); !strings.HasPrefix(text, tokenPrefix) || len(token.Hash) != sha256.Size || strings.Contains(string(kept)+string(token.Hash), text[len(text)-30:]) {
		t.Errorf("token %s is kept as %s", text, kept)
	}
	if got := ask(h, "GET", "/v1/x", "Authorization", "bearer  "+text); got.Code != 200 || got.Body.String() != `{"name":"shop","role":"client","from":"192.0.2.1","via":"http"}`+"\n" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := ask(h, "GET", "/v1/x"); got.Code != 401 {
		t.Errorf("without one: %d", got.Code)
	}
	plain := text[:len(text)-sumChars]
	summed := func(text string) string { return "Bearer " + text + sumOf(text) }
	other := "A" + plain[len(plain)-42:]
	if strings.HasSuffix(plain, other) {
		other = "B" + other[1:]
	}
	for what, given := range map[string]string{
		"another secret": summed(plain[:len(plain)-43] + other), "no secret": summed(plain[:len(plain)-44]), "unknown": summed("duly_aaaaaaaaaaaaaaaa_" + plain[len(plain)-43:]), "no sum": "Bearer " + plain,
		"no prefix": "Bearer x", "another scheme": "Basic eDp5", "empty": "Bearer", "long": "Bearer " + strings.Repeat("duly_", 10000), "upper id": "Bearer " + strings.ToUpper(text),
	} {
		got := ask(h, "GET", "/v1/x", "Authorization", given)
		if got.Code != 401 || !strings.Contains(got.Header().Get("WWW-Authenticate"), "invalid_token") || got.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", what, got.Code, got.Body)
		}
	}
	c.pass(time.Hour)
	if got := ask(h, "GET", "/v1/x", "Authorization", "Bearer "+text); got.Code != 401 {
		t.Errorf("expired: %d", got.Code)
	}
	for want, make := range map[string]func() (operate.Token, string, error){
		"name": func() (operate.Token, string, error) {
			return NewToken("", operate.RoleAdmin, "", c.now(), time.Time{})
		},
		"name:": func() (operate.Token, string, error) {
			return NewToken(strings.Repeat("n", 65), operate.RoleAdmin, "", c.now(), time.Time{})
		},
		"role":    func() (operate.Token, string, error) { return NewToken("n", "root", "", c.now(), time.Time{}) },
		"expires": func() (operate.Token, string, error) { return NewToken("n", operate.RoleAdmin, "", c.now(), c.now()) },
	} {
		if _, _, err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestRevocation: it is seen within seconds, while many requests make few reads; the use is noted once a minute; a store
// that is away keeps no known token out.
//
// covers: OP17
func TestRevocation(t *testing.T) {
	s, c := newShelf(), newClock()
	a, err := New(Config{Mode: Token, Tokens: s, Sessions: newSessionShelf(), Now: c.now, Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	h := a.Middleware(whoami)
	token, text, err := CreateToken(t.Context(), s, "shop", operate.RoleOperator, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	use := func() int { return ask(h, "GET", "/v1/x", "Authorization", "Bearer "+text).Code }
	for range 300 { // 30 s of ten a second
		if code := use(); code != 200 {
			t.Fatal(code)
		}
		c.pass(100 * time.Millisecond)
	}
	if s.reads > 11 || s.touches != 1 {
		t.Errorf("%d reads and %d touches in 30 s, want at most 11 and 1", s.reads, s.touches)
	}
	c.pass(time.Minute)
	use()
	if s.touches != 2 {
		t.Errorf("%d touches, want one each minute", s.touches)
	}
	s.err = errors.New("away")
	c.pass(5 * time.Minute)
	if code := use(); code != 200 {
		t.Errorf("%d while the store is away", code)
	}
	c.pass(6 * time.Minute)
	if code := use(); code != 503 {
		t.Errorf("%d after the store was away for long, want 503", code)
	}
	s.err = nil
	if code := use(); code != 200 {
		t.Errorf("%d when the store is back", code)
	}
	_ = s.RevokeToken(t.Context(), token.ID, c.now())
	c.pass(cacheFor)
	if code := use(); code != 401 {
		t.Errorf("%d after it was revoked", code)
	}
}

// TestGuesses: who makes tokens up makes no reads, and who does it well makes few, keeps no token of another source out, and
// fills no memory; neither do many sources.
//
// covers: P7
func TestGuesses(t *testing.T) {
	s, c := newShelf(), newClock()
	_, text, err := CreateToken(t.Context(), s, "shop", operate.RoleClient, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := newTokens(s, c.now, silent)
	guesses := 0
	show := func(source, text string) error {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RemoteAddr = source
		_, err := tokens.check(withSource(r), text)
		return err
	}
	guess := func(source string, sum bool) error {
		guesses++
		made := tokenPrefix + idText.EncodeToString(fmt.Appendf(nil, "%010d", guesses)) + "_" + strings.Repeat("A", 43)
		if sum {
			made += sumOf(made)
		} else {
			made += "aaaaaaa"
		}
		return show(source, made)
	}
	for range 1000 {
		if err := guess("192.0.2.1:1", false); !errors.Is(err, errToken) {
			t.Fatalf("a token that was made up: %v", err)
		}
	}
	if s.reads != 0 {
		t.Errorf("%d reads for tokens that were made up", s.reads)
	}
	many := 0
	for i := range 3000 {
		if errors.Is(guess(fmt.Sprintf("[2001:db8::%x]:1", i), true), errTooMany) { // of one network
			many++
		}
	}
	if s.reads != sourceBurst || many != 3000-sourceBurst {
		t.Errorf("%d reads, %d refused", s.reads, many)
	}
	if err := show("192.0.2.1:2", text); err != nil {
		t.Errorf("a token beside guesses of another source: %v", err)
	}
	for i := range 10_000 {
		_ = guess(fmt.Sprintf("10.0.%d.%d:1", i/250, i%250), true)
	}
	if s.reads > unknownBurst || s.lists != 1 {
		t.Errorf("%d reads and %d lists for many sources", s.reads, s.lists)
	}
	_, late, err := CreateToken(t.Context(), s, "late", operate.RoleClient, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := show("10.0.0.1:1", late); !errors.Is(err, errTooMany) {
		t.Errorf("a new token beside guesses of its own source: %v", err)
	}
	c.pass(listEach - 1)
	for i := range 10_000 {
		_ = guess(fmt.Sprintf("10.0.%d.%d:1", i/250, i%250), true)
	}
	c.pass(1)
	if err := show("10.0.0.1:1", late); err != nil || s.lists != 2 {
		t.Errorf("a token beside guesses of its own source: %v, %d lists", err, s.lists)
	}
	s.err = errors.New("away")
	c.pass(listEach)
	for range 100 {
		if err := guess("10.0.0.1:1", true); !errors.Is(err, errTooMany) && !errors.Is(err, errStore) {
			t.Error(err)
		}
	}
	if s.lists != 3 {
		t.Errorf("%d lists of a store that is away", s.lists)
	}
	for i := range cacheMax + 100 {
		id := fmt.Sprint(i)
		tokens.put(id, entry[operate.Token]{})
	}
	if n := len(tokens.entries); n > cacheMax {
		t.Errorf("%d entries, want at most %d", n, cacheMax)
	}
}

// TestRefusedCredentialsAreLogged: who signs in is in the log, and so are credentials that do not hold, by the address that
// they came from and without anything of them; a flood of them is not.
//
// covers: P20
func TestRefusedCredentialsAreLogged(t *testing.T) {
	var lines bytes.Buffer
	server, client, s, c := signInServer(t, func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&lines, nil)) })
	_, text, err := CreateToken(t.Context(), s, "olga", operate.RoleOperator, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	wrong := text[:len(text)-1]
	for range 100 {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/tasks", nil)
		r.Header.Set("Authorization", "Bearer "+wrong)
		resp, err := client.Do(r)
		if code, _ := body(t, resp, err); code != 401 {
			t.Fatal(code)
		}
	}
	c.pass(time.Hour)
	resp, err := client.PostForm(server.URL+PathSignIn, url.Values{"token": {wrong}})
	body(t, resp, err)
	resp, err = client.PostForm(server.URL+PathSignIn, url.Values{"token": {text}})
	body(t, resp, err)
	server.Close()
	log := lines.String()
	for part, want := range map[string]int{
		`msg="credentials were refused" from=127.0.0.1 path=/v1/tasks error="the token is not valid`: refusedBurst, `msg="credentials were refused" from=127.0.0.1 path=/login`: 1,
		`msg="signed in" name=olga role=operator`: 1, text[len(text)-20 : len(text)-7]: 0,
	} {
		if n := strings.Count(log, part); n != want {
			t.Errorf("%q is there %d times, want %d:\n%s", part, n, want, log)
		}
	}
}

// TestOff: everyone is the local admin, but no page of another site is.
//
// covers: OP17
func TestOff(t *testing.T) {
	a, err := New(Config{Mode: Off, Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	h := a.Middleware(whoami)
	if got := ask(h, "POST", "/v1/x"); got.Code != 200 || !strings.Contains(got.Body.String(), `"name":"local","role":"admin"`) {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	for name, x := range map[string]struct {
		headers []string
		code    int
	}{
		"another site":   {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		"another origin": {[]string{"Origin", "https://evil.example"}, 403},
		"the same site":  {[]string{"Sec-Fetch-Site", "same-origin"}, 200},
	} {
		if got := ask(h, "POST", "/v1/x", x.headers...); got.Code != x.code {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
		if got := ask(h, "GET", "/v1/x", x.headers...); got.Code != 200 {
			t.Errorf("%s reads: %d", name, got.Code)
		}
	}
}

// TestHeaders: browsers are told what an answer may do.
//
// covers: OP20
func TestHeaders(t *testing.T) {
	got := ask(Headers(whoami), "GET", "/").Header()
	for name, value := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Content-Security-Policy": contentPolicy} {
		if got.Get(name) != value {
			t.Errorf("%s: %q", name, got.Get(name))
		}
	}
	if strings.Contains(contentPolicy, "unsafe") || !strings.Contains(contentPolicy, "default-src 'self'") || !strings.Contains(contentPolicy, "frame-ancestors 'none'") {
		t.Error(contentPolicy)
	}
}

// signInServer serves whoami behind sessions; the client keeps cookies and follows.
func signInServer(t *testing.T, change func(*Config)) (*httptest.Server, *http.Client, *shelf, *clock) {
	t.Helper()
	s, c := newShelf(), newClock()
	mux := http.NewServeMux()
	server := httptest.NewServer(Headers(mux))
	t.Cleanup(server.Close)
	cfg := Config{Mode: Token, Tokens: s, Sessions: newSessionShelf(), URL: server.URL, Now: c.now, Log: silent}
	if change != nil {
		change(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.Mount(mux)
	mux.Handle("/", a.Middleware(whoami))
	jar, _ := cookiejar.New(nil)
	client := &http.Client{Jar: jar, Timeout: 10 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	return server, client, s, c
}

func body(t *testing.T, resp *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestSignInsAreBounded: who signs in and out again and again, each of which is written, is told to wait, and others are not.
//
// covers: P20
func TestSignInsAreBounded(t *testing.T) {
	server, client, s, c := signInServer(t, nil)
	tokens := make([]string, 2)
	for i := range tokens {
		var err error
		if _, tokens[i], err = CreateToken(t.Context(), s, "olga", operate.RoleOperator, "test", c.now(), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	signIn := func(token string) (code int, page string) {
		resp, err := client.PostForm(server.URL+PathSignIn, url.Values{"token": {token}, "next": {PathSignIn}})
		code, page = body(t, resp, err)
		resp, err = client.Post(server.URL+PathSignOut, "", nil)
		_, _ = body(t, resp, err)
		return code, page
	}
	for i := range beginBurst {
		if code, page := signIn(tokens[0]); code != 200 {
			t.Fatalf("sign-in %d: %d %s", i+1, code, page)
		}
	}
	if code, page := signIn(tokens[0]); code != 429 || !strings.Contains(page, "too many sign-ins, wait a minute") {
		t.Errorf("one more: %d %s", code, page)
	}
	if code, page := signIn(tokens[1]); code != 200 {
		t.Errorf("another token: %d %s", code, page)
	}
	c.pass(beginEach)
	if code, page := signIn(tokens[0]); code != 200 {
		t.Errorf("later: %d %s", code, page)
	}
}

// TestIDsOfANewToken: what ids begin with is the beginning of an id that leaves room behind it.
//
// covers: P14
func TestIDsOfANewToken(t *testing.T) {
	for ids, want := range map[string]bool{"acme-": true, "acme_0123456789-0123": true, "acme_0123456789-01234": false, "acme.": false, "a b": false} {
		_, _, err := NewToken("shop", operate.RoleClient, "olga", time.Now(), time.Time{}, core.Label{Key: operate.IDsLabel, Value: ids})
		if (err == nil) != want {
			t.Errorf("%s: %v", ids, err)
		}
	}
}

// TestSignInWithToken: a person with a token has a session until it is revoked, or they sign out; a page of another site
// signs no one in.
//
// covers: OP17, OP20
func TestSignInWithToken(t *testing.T) {
	server, client, s, c := signInServer(t, nil)
	token, text, err := CreateToken(t.Context(), s, "olga", operate.RoleOperator, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(server.URL + PathSignIn + "?next=/x%3Fa=1")
	if code, page := body(t, resp, err); code != 200 || !strings.Contains(page, `value="/x?a=1"`) || strings.Contains(page, "<script") || strings.Contains(page, "style") {
		t.Errorf("%d %s", code, page)
	}
	resp, err = client.PostForm(server.URL+PathSignIn, url.Values{"token": {"duly_nonsense"}, "next": {"//evil.example"}})
	if code, page := body(t, resp, err); code != 401 || strings.Contains(page, "evil") {
		t.Errorf("%d %s", code, page)
	}
	resp, err = client.PostForm(server.URL+PathSignIn, url.Values{"token": {text}, "next": {"/x"}})
	if code, who := body(t, resp, err); code != 200 || !strings.Contains(who, `"name":"olga","role":"operator","from":"127.0.0.1","via":"console"`) || resp.Request.URL.Path != "/x" {
		t.Errorf("%d %s at %s", code, who, resp.Request.URL)
	}
	for _, cookie := range client.Jar.Cookies(resp.Request.URL) {
		if strings.Contains(cookie.Value, text[len(text)-20:]) {
			t.Error("the cookie has the token")
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/x", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err = client.Do(r)
	if code, _ := body(t, resp, err); code != 403 {
		t.Errorf("a page of another site with the cookie: %d", code)
	}
	_ = s.RevokeToken(t.Context(), token.ID, c.now())
	c.pass(cacheFor)
	resp, err = client.Get(server.URL + "/x")
	if code, _ := body(t, resp, err); code != 401 {
		t.Errorf("after the token was revoked: %d", code)
	}

	_, again, err := CreateToken(t.Context(), s, "olga", operate.RoleOperator, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	resp, err = client.PostForm(server.URL+PathSignIn, url.Values{"token": {again}})
	if code, _ := body(t, resp, err); code != 200 {
		t.Fatalf("%d", code)
	}
	old := client.Jar.Cookies(resp.Request.URL)[0]
	resp, err = client.PostForm(server.URL+PathSignOut, nil)
	if code, page := body(t, resp, err); code != 200 || !strings.Contains(page, "Sign in") {
		t.Errorf("%d %s", code, page)
	}
	r, _ = http.NewRequestWithContext(t.Context(), "GET", server.URL+"/x", nil)
	r.AddCookie(old)
	resp, err = http.DefaultClient.Do(r)
	if code, _ := body(t, resp, err); code != 401 {
		t.Errorf("a cookie of before signing out: %d", code)
	}
	http.DefaultClient.CloseIdleConnections()
	r, _ = http.NewRequestWithContext(t.Context(), "POST", server.URL+PathSignIn, strings.NewReader("token="+again))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "https://evil.example")
	resp, err = client.Do(r)
	if code, _ := body(t, resp, err); code != 403 {
		t.Errorf("signed in from another site: %d", code)
	}
}

// sessionShelf is a store of sessions in memory, which several nodes share.
type sessionShelf struct {
	mu    sync.Mutex
	all   map[string]operate.Session
	reads int
	err   error
}

func newSessionShelf() *sessionShelf { return &sessionShelf{all: map[string]operate.Session{}} }

func (s *sessionShelf) PutSession(_ context.Context, one operate.Session, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[one.ID] = one
	return s.err
}

func (s *sessionShelf) SessionByID(_ context.Context, id string) (operate.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	one, ok := s.all[id]
	if s.err == nil && !ok {
		return one, fmt.Errorf("session: %w", core.ErrNotFound)
	}
	return one, s.err
}

func (s *sessionShelf) SessionIDs(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all)), s.err
}

func (s *sessionShelf) DeleteSession(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
	return s.err
}

func (s *sessionShelf) is(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// TestSessionsOfTwoNodes: who has signed in at one node is known at the other, and no more when the session has ended at
// either, or its time is over; the store has nothing that a browser could show. While the store is away, sessions that
// were good count for a time, and others are told to come again.
//
// covers: OP17
func TestSessionsOfTwoNodes(t *testing.T) {
	tokens, c, shared := newShelf(), newClock(), newSessionShelf()
	node := func() http.Handler {
		a, err := New(Config{Mode: Token, Tokens: tokens, Sessions: shared, Now: c.now, Log: silent})
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		a.Mount(mux)
		mux.Handle("/", a.Middleware(whoami))
		return mux
	}
	one, two := node(), node()
	_, text, err := CreateToken(t.Context(), tokens, "olga", operate.RoleOperator, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	signIn := func(at http.Handler) *http.Cookie {
		t.Helper()
		r := httptest.NewRequest("POST", PathSignIn, strings.NewReader("token="+text))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		at.ServeHTTP(w, r)
		if w.Code != http.StatusSeeOther {
			t.Fatalf("sign-in: %d %s", w.Code, w.Body)
		}
		return w.Result().Cookies()[0]
	}
	get := func(at http.Handler, cookie *http.Cookie) int {
		t.Helper()
		r := httptest.NewRequest("GET", "/x", nil)
		r.AddCookie(cookie)
		w := httptest.NewRecorder()
		at.ServeHTTP(w, r)
		return w.Code
	}
	cookie := signIn(one)
	for id, kept := range shared.all {
		if strings.Contains(id+string(kept.Data), cookie.Value) || strings.Contains(string(kept.Data), text) {
			t.Error("the store has what the browser shows")
		}
	}
	if code := get(two, cookie); code != 200 {
		t.Errorf("at the other node: %d", code)
	}
	reads := shared.reads
	for range 10 {
		get(two, cookie)
	}
	if shared.reads != reads {
		t.Errorf("%d reads of 10 requests", shared.reads-reads)
	}
	// The store is away.
	shared.is(errors.New("database away"))
	c.pass(cacheFor)
	if code := get(two, cookie); code != 200 {
		t.Errorf("a known session while the store is away: %d", code)
	}
	if code := get(node(), cookie); code != 503 {
		t.Errorf("an unknown session while the store is away: %d", code)
	}
	c.pass(staleFor)
	if code := get(two, cookie); code != 503 {
		t.Errorf("a session that was not read for %v: %d", staleFor, code)
	}
	shared.is(nil)
	if code := get(two, cookie); code != 200 {
		t.Errorf("when the store is back: %d", code)
	}
	// Signed out at the one, it is over at the other, too.
	r := httptest.NewRequest("POST", PathSignOut, nil)
	r.AddCookie(cookie)
	one.ServeHTTP(httptest.NewRecorder(), r)
	if code := get(one, cookie); code != 401 {
		t.Errorf("after signing out there: %d", code)
	}
	c.pass(cacheFor)
	if code := get(two, cookie); code != 401 {
		t.Errorf("after signing out elsewhere: %d", code)
	}
	// Its time is the same at both.
	cookie = signIn(two)
	if code := get(one, cookie); code != 200 {
		t.Errorf("signed in once more: %d", code)
	}
	for _, kept := range shared.all { // the library's clock is the machine's
		c.pass(kept.Expires.Sub(c.now()))
	}
	if code := get(one, cookie); code != 401 {
		t.Errorf("after its time: %d", code)
	}
	// Guesses are few, and fill no memory.
	refused := 0
	for i := range 2 * unknownBurst {
		if get(two, &http.Cookie{Name: cookie.Name, Value: fmt.Sprint("guess", i)}) == 429 {
			refused++
		}
	}
	if refused == 0 {
		t.Error("guesses are not bounded")
	}
}

// TestCookies: by TLS a cookie is bound to the host and to TLS.
//
// covers: OP20
func TestCookies(t *testing.T) {
	s, c := newShelf(), newClock()
	a, err := New(Config{Mode: Token, Tokens: s, Sessions: newSessionShelf(), URL: "https://ops.example.org/duly", Now: c.now, Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := CreateToken(t.Context(), s, "olga", operate.RoleViewer, "test", c.now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	a.Mount(mux)
	r := httptest.NewRequest("POST", PathSignIn, strings.NewReader("next=/x&token="+text))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	cookie := w.Header().Get("Set-Cookie")
	for _, want := range []string{"__Host-duly-session=", "Secure", "HttpOnly", "SameSite=Lax", "Path=/"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("cookie %s, want %s", cookie, want)
		}
	}
	if strings.Contains(cookie, "Domain") || w.Header().Get("Location") != "/duly/x" {
		t.Errorf("cookie %s, location %s", cookie, w.Header().Get("Location"))
	}
}

// TestOIDC: a person signs in at the provider and has the role of their groups; an answer of another sign-in, a code that
// the provider does not know and a person without a role are refused.
//
// covers: OP17
func TestOIDC(t *testing.T) {
	provider, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = provider.Shutdown() }()
	server, client, _, _ := signInServer(t, func(c *Config) {
		c.Now = nil
		c.Mode, c.OIDC = OIDC, Provider{Issuer: provider.Issuer(), ClientID: provider.Config().ClientID, Secret: provider.Config().ClientSecret,
			Groups: map[operate.Role][]string{operate.RoleViewer: {"everyone"}, operate.RoleOperator: {"ops"}}}
	})
	defer http.DefaultClient.CloseIdleConnections()
	provider.QueueUser(&mockoidc.MockUser{Subject: "s-1", Email: "olga@example.org", EmailVerified: true, Groups: []string{"everyone", "ops"}})
	resp, err := client.Get(server.URL + PathLeave + "?next=/x")
	if code, who := body(t, resp, err); code != 200 || !strings.Contains(who, `"name":"olga@example.org","role":"operator"`) || resp.Request.URL.Path != "/x" {
		t.Errorf("%d %s at %s", code, who, resp.Request.URL)
	}
	provider.QueueUser(&mockoidc.MockUser{Subject: "s-2", Email: "admin@example.org", EmailVerified: false, Groups: []string{"everyone"}})
	resp, err = client.Get(server.URL + PathLeave + "?next=https://evil.example/")
	if code, who := body(t, resp, err); code != 200 || !strings.Contains(who, `"name":"s-2","role":"viewer"`) || resp.Request.URL.Path != "/" {
		t.Errorf("an address that is not verified: %d %s at %s", code, who, resp.Request.URL)
	}
	provider.QueueUser(&mockoidc.MockUser{Subject: "s-3", Groups: []string{"cooks"}})
	resp, err = client.Get(server.URL + PathLeave)
	if code, page := body(t, resp, err); code != 403 || !strings.Contains(page, "none of your groups has a role") {
		t.Errorf("without a role: %d %s", code, page)
	}
	resp, err = client.Get(server.URL + PathCallback + "?code=x&state=y")
	if code, _ := body(t, resp, err); code != 400 {
		t.Errorf("an answer that was not asked for: %d", code)
	}
	stop := &http.Client{Jar: client.Jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer stop.CloseIdleConnections()
	resp, err = stop.Get(server.URL + PathLeave)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || to.Query().Get("code_challenge_method") != "S256" || to.Query().Get("nonce") == "" {
		t.Fatalf("%v %v", to, err)
	}
	resp, err = stop.Get(server.URL + PathCallback + "?code=forged&state=other")
	if code, page := body(t, resp, err); code != 400 || !strings.Contains(page, "another sign-in") {
		t.Errorf("another state: %d %s", code, page)
	}
	resp, err = stop.Get(server.URL + PathLeave)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	to, _ = url.Parse(resp.Header.Get("Location"))
	resp, err = stop.Get(server.URL + PathCallback + "?code=forged&state=" + to.Query().Get("state"))
	if code, page := body(t, resp, err); code != 403 || !strings.Contains(page, "did not confirm") {
		t.Errorf("a forged code: %d %s", code, page)
	}
}

// TestClaimsAsTheyCome: claims are read in the forms that providers write; what has another form counts for nothing, and
// groups that are left out are told.
//
// covers: P16
func TestClaimsAsTheyCome(t *testing.T) {
	p := &provider{cfg: Provider{Claim: "groups", Groups: map[operate.Role][]string{operate.RoleOperator: {"ops"}}}}
	const ops, mail = `"groups":["ops"]`, `"email":"a@example.org"`
	for claims, want := range map[string]string{
		`{` + mail + `,"email_verified":true,` + ops + `}`:              "a@example.org operator",
		`{` + mail + `,"email_verified":"true",` + ops + `}`:            "a@example.org operator",
		`{` + mail + `,"email_verified":"false",` + ops + `}`:           "s-1 operator",
		`{` + mail + `,"email_verified":"yes",` + ops + `}`:             "s-1 operator",
		`{` + mail + `,"email_verified":1,` + ops + `}`:                 "s-1 operator",
		`{` + mail + `,"email_verified":null,` + ops + `}`:              "s-1 operator",
		`{` + mail + `,` + ops + `}`:                                    "s-1 operator",
		`{"email":["a@example.org"],"email_verified":true,` + ops + `}`: "s-1 operator",
		`{"groups":"ops"}`:         "s-1 operator",
		`{"groups":["x",7,"ops"]}`: "s-1 operator",
		`{"groups":{"ops":true}}`:  "s-1 none of your groups",
		`{"groups":[]}`:            "s-1 none of your groups",
		`{}`:                       "s-1 the identity provider says nothing of your groups (claim groups)",
		`{"_claim_names":{"groups":"src1"},"_claim_sources":{"src1":{"endpoint":"https://graph.example.org"}}}`: "s-1 the identity provider left your groups out",
		`{"hasgroups":true}`:                  "s-1 the identity provider left your groups out",
		`{"_claim_names":{"address":"src1"}}`: "s-1 the identity provider says nothing",
		`{"_claim_names":"groups"}`:           "s-1 the identity provider says nothing",
	} {
		said := map[string]any{}
		if err := json.Unmarshal([]byte(claims), &said); err != nil {
			t.Fatal(err)
		}
		who := p.personOf("s-1", said)
		if got := who.name + " " + string(who.role) + who.lacks; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", claims, got, want)
		}
	}
	// An id that a person chose at the provider is no address that was verified.
	if who := p.personOf("admin@example.org", map[string]any{"email": "admin@example.org", "email_verified": "false"}); who.name != "id:admin@example.org" {
		t.Errorf("named %s", who.name)
	}
}

// TestOwnPath: no address leads a person who signs in to another server.
//
// covers: OP20
func TestOwnPath(t *testing.T) {
	for given, want := range map[string]string{
		"/x?a=1#b": "/x?a=1#b", "": "/", "x": "/", "//evil.example": "/", `/\evil.example`: "/", "https://evil.example": "/", "/a\r\nSet-Cookie: x": "/", "/\tx": "/", "/" + strings.Repeat("x", 3000): "/",
	} {
		if got := ownPath(given); got != want {
			t.Errorf("%.40q: %q, want %q", given, got, want)
		}
	}
}

// TestConfig: what cannot work is refused by its name.
func TestConfig(t *testing.T) {
	groups := map[operate.Role][]string{operate.RoleViewer: {"x"}}
	for want, c := range map[string]Config{
		"a log is required": {Mode: Off}, `auth: "basic"`: {Mode: "basic", Log: silent}, "a store of tokens": {Mode: Token, Log: silent}, "http-url": {Mode: Off, URL: "ops", Log: silent},
		"oidc-issuer":  {Mode: OIDC, Tokens: newShelf(), Sessions: newSessionShelf(), URL: "https://x", OIDC: Provider{Groups: groups}, Log: silent},
		"leads people": {Mode: OIDC, Tokens: newShelf(), Sessions: newSessionShelf(), OIDC: Provider{Issuer: "https://x", ClientID: "x", Groups: groups}, Log: silent},
		"no group":     {Mode: OIDC, Tokens: newShelf(), Sessions: newSessionShelf(), URL: "https://x", OIDC: Provider{Issuer: "https://x", ClientID: "x"}, Log: silent},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
