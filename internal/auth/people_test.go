package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
)

// personAt has people sign in at a provider.
func personAt(issuer string, s *shelf, sessions *sessionShelf, log *slog.Logger) Config {
	return Config{Mode: OIDC, Tokens: s, Sessions: sessions, URL: "http://duly.example.org", Log: log,
		OIDC: Provider{Issuer: issuer, ClientID: "duly", Groups: map[operate.Role][]string{operate.RoleAdmin: {"admins"}}}}
}

// TestSessionOfBefore: when people cannot sign in any more, because the provider is not trusted any more for instance, the
// sessions that they have count for nothing; those of tokens stay.
func TestSessionOfBefore(t *testing.T) {
	s, sessions := newShelf(), newSessionShelf()
	before, err := New(personAt("https://accounts.example.org", s, sessions, silent))
	if err != nil {
		t.Fatal(err)
	}
	now, err := New(Config{Mode: Token, Tokens: s, Sessions: sessions, Log: silent})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := CreateToken(t.Context(), s, "olga", operate.RoleViewer, "test", time.Now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		values map[string]string
		after  int
	}{{map[string]string{"name": "ada", "role": "admin"}, 401}, {map[string]string{"token": token.ID}, 200}} {
		r, w := httptest.NewRequest("GET", "/x", nil), httptest.NewRecorder()
		if err := before.begin(w, r, "someone", time.Time{}, x.values); err != nil {
			t.Fatal(err)
		}
		for mode, want := range map[*Auth]int{before: 200, now: x.after} {
			r := httptest.NewRequest("GET", "/x", nil)
			r.AddCookie(w.Result().Cookies()[0])
			got := httptest.NewRecorder()
			if mode.Middleware(whoami).ServeHTTP(got, r); got.Code != want {
				t.Errorf("%v with auth %s: %d %s, want %d", x.values, mode.cfg.Mode, got.Code, got.Body, want)
			}
		}
	}
}

// TestProviderThatHangs: while one looks for a provider that does not answer, others do not wait longer than they stay.
func TestProviderThatHangs(t *testing.T) {
	asked, release := make(chan struct{}, 100), make(chan struct{})
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	defer provider.Close()
	a, err := New(personAt(provider.URL, newShelf(), newSessionShelf(), silent))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	a.Mount(mux)
	leave := func(ctx context.Context) {
		w := httptest.NewRecorder()
		if mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", PathLeave, nil)); w.Code != http.StatusBadGateway {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	var first, others sync.WaitGroup
	first.Go(func() { leave(t.Context()) })
	<-asked
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		others.Go(func() { leave(gone) })
	}
	others.Wait()
	close(release)
	first.Wait()
}

// TestCodesThatAreMadeUp: who shows codes that no provider gave has it asked about few of them, and fills no log.
func TestCodesThatAreMadeUp(t *testing.T) {
	var asked atomic.Int64
	mux := http.NewServeMux()
	provider := httptest.NewServer(mux)
	defer provider.Close()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%[1]q,"token_endpoint":"%[1]s/token","jwks_uri":"%[1]s/keys"}`, provider.URL)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
	})
	var lines bytes.Buffer
	cfg, c := personAt(provider.URL, newShelf(), newSessionShelf(), slog.New(slog.NewTextHandler(&lines, nil))), newClock()
	cfg.Now = c.now
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	own := http.NewServeMux()
	a.Mount(own)
	codes := map[int]int{}
	for range 100 {
		r := httptest.NewRequest("GET", PathCallback+"?code=x&state=s", nil)
		r.AddCookie(&http.Cookie{Name: "duly-login", Value: url.Values{"state": {"s"}}.Encode()})
		w := httptest.NewRecorder()
		own.ServeHTTP(w, r)
		codes[w.Code]++
	}
	// The library asks for each in two forms.
	if n := asked.Load(); n > 2*sourceBurst || codes[http.StatusForbidden] != sourceBurst || codes[http.StatusTooManyRequests] != 100-sourceBurst {
		t.Errorf("the provider was asked %d times; answers %v", n, codes)
	}
	if n := strings.Count(lines.String(), "\n"); n != refusedBurst {
		t.Errorf("%d lines in the log, want %d:\n%s", n, refusedBurst, lines.String())
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestCertificateEnds: a connection that is kept open does not outlive the certificate that it was begun with, nor its
// authority's.
func TestCertificateEnds(t *testing.T) {
	c := newClock()
	a, err := New(Config{Mode: Token, Tokens: newShelf(), Now: c.now, Log: silent, Certificates: Certificates{operate.RoleAdmin: {"ada"}}})
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "ada"}, NotAfter: c.now().Add(time.Hour)}
	authority := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, NotAfter: c.now().Add(2 * time.Hour)}
	for _, want := range []int{200, 401} {
		for _, chain := range [][]*x509.Certificate{{leaf, authority}, {authority, leaf}} {
			chain[0].Subject.CommonName, chain[1].Subject.CommonName = "ada", "authority"
			r := httptest.NewRequest("GET", "/x", nil)
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{chain}}
			w := httptest.NewRecorder()
			if a.Middleware(whoami).ServeHTTP(w, r); w.Code != want {
				t.Errorf("at %v, the first until %v: %d %s, want %d", c.now(), chain[0].NotAfter, w.Code, w.Body, want)
			}
		}
		c.pass(time.Hour + time.Second)
	}
}
