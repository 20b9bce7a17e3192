package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// Mode is how requests are authenticated.
type Mode string

// The modes.
const (
	Off   Mode = "off"   // everyone is the local actor, an admin
	Token Mode = "token" // bearer tokens, also to sign in with
	OIDC  Mode = "oidc"  // bearer tokens, and people sign in at an identity provider
)

// LocalActor is who asks where authentication is off.
const LocalActor = "local"

const (
	sessionFor  = 8 * time.Hour // a person signs in again after that
	retryStore  = time.Second
	retryTokens = 2 * time.Second

	// Refused credentials that are logged, of one source: some at once, and one after each.
	refusedEach  = 10 * time.Second
	refusedBurst = 5

	// Sessions that one begins, each of which is written: some at once, and one after each.
	beginEach  = 2 * time.Second
	beginBurst = 60
)

// Config is how requests are authenticated.
type Config struct {
	Mode         Mode
	Tokens       operate.TokenStore // required unless Mode is Off
	OIDC         Provider           // of Mode OIDC
	Certificates Certificates       // of clients; nil: they are not looked at
	// Sessions keeps the sessions of all nodes; nil: no one can sign in, and only tokens and certificates are taken.
	Sessions operate.SessionStore
	// URL is what browsers call this server, with the path that a proxy puts before ours, as https://ops.example.org/duly.
	// Empty: as the request says, which is enough where nothing but tokens is used.
	URL string
	// Refuse answers what is refused; nil: a problem document.
	Refuse func(w http.ResponseWriter, r *http.Request, bad *operate.Refusal)
	Now    func() time.Time // nil: time.Now
	Log    *slog.Logger     // required
}

// Auth authenticates requests. It is safe for concurrent use.
type Auth struct {
	cfg      Config
	base     *url.URL // of Config.URL; nil: not given
	tokens   *tokens
	provider *provider // of Mode OIDC
	sessions *scs.SessionManager
	foreign  *http.CrossOriginProtection
	told     *operate.Buckets // of refusals that are logged
	begun    *operate.Buckets // of sessions, by owner
}

// New makes it. Error: a configuration that cannot work. An identity provider is looked for when someone signs in.
func New(cfg Config) (*Auth, error) {
	if cfg.Log == nil {
		return nil, errors.New("auth: a log is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Refuse == nil {
		cfg.Refuse = refuse
	}
	a := &Auth{cfg: cfg, foreign: http.NewCrossOriginProtection(), told: operate.NewBuckets(refusedEach, refusedBurst), begun: operate.NewBuckets(beginEach, beginBurst)}
	if cfg.URL != "" {
		base, err := url.Parse(cfg.URL)
		if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" {
			return nil, fmt.Errorf("http-url: %.200q, want what browsers call this server, as https://duly.example.org", cfg.URL)
		}
		a.base = base
		if err := a.foreign.AddTrustedOrigin(base.Scheme + "://" + base.Host); err != nil {
			return nil, fmt.Errorf("http-url: %.200q: %w", cfg.URL, err)
		}
	}
	a.foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cfg.Refuse(w, r, &operate.Refusal{Code: http.StatusForbidden, Detail: "a page of another site may not send this request"})
	}))
	switch cfg.Mode {
	case Off:
		return a, nil
	case Token, OIDC:
	default:
		return nil, fmt.Errorf("auth: %.40q, want %s, %s or %s", cfg.Mode, Off, Token, OIDC)
	}
	if cfg.Tokens == nil {
		return nil, errors.New("auth: a store of tokens is required")
	}
	if err := cfg.Certificates.check(); err != nil {
		return nil, err
	}
	a.tokens = newTokens(cfg.Tokens, cfg.Now, cfg.Log)
	if cfg.Sessions == nil && cfg.Mode == Token {
		return a, nil
	}
	if cfg.Sessions == nil {
		return nil, errors.New("auth: oidc needs a store of sessions")
	}
	// Not by scs.New, which begins a store of its own, and a goroutine of that.
	a.sessions = &scs.SessionManager{
		Lifetime: sessionFor, Store: newSharedSessions(cfg.Sessions, cfg.Now, cfg.Log), Codec: scs.GobCodec{}, HashTokenInStore: true,
		Cookie: scs.SessionCookie{Name: a.cookie("duly-session"), Path: "/", HttpOnly: true, Secure: a.secure(), SameSite: http.SameSiteLaxMode}, // Lax: the provider leads back here
	}
	if cfg.Mode == OIDC {
		var err error
		if a.provider, err = newProvider(cfg.OIDC, a.base); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// secure reports whether browsers come by TLS.
func (a *Auth) secure() bool { return a.base != nil && a.base.Scheme == "https" }

// cookie is the name of a cookie: by TLS one that no other host can set.
func (a *Auth) cookie(name string) string {
	if a.secure() {
		return "__Host-" + name
	}
	return name
}

// at is a path of this server as a browser names it.
func (a *Auth) at(path string) string {
	if a.base == nil {
		return path
	}
	return strings.TrimSuffix(a.base.Path, "/") + path
}

// Middleware puts the actor of a request into its context. A request without credentials has none; one whose
// credentials do not hold, or that a page of another site sends, is refused.
func (a *Auth) Middleware(next http.Handler) http.Handler {
	return a.foreign.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, err := a.who(r)
		switch {
		case err != nil:
			a.deny(w, r, err)
			return
		case actor.Name != "":
			ctx, done := a.during(r, actor)
			defer done()
			actor.From = from(r)
			r = r.WithContext(operate.WithActor(ctx, actor))
		}
		next.ServeHTTP(w, r)
	}))
}

// who is the actor of a request; without credentials one without a name.
func (a *Auth) who(r *http.Request) (operate.Actor, error) {
	if a.cfg.Mode == Off {
		return operate.Actor{Name: LocalActor, Role: operate.RoleAdmin, Via: "http", Open: true}, nil
	}
	if given := r.Header.Get("Authorization"); given != "" {
		scheme, text, _ := strings.Cut(given, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return operate.Actor{}, errScheme
		}
		token, err := a.tokens.check(withSource(r), strings.TrimSpace(text))
		return operate.Actor{Name: token.Name, Role: token.Role, Via: "http", Labels: token.Labels}, err
	}
	actor, unknown := a.certified(r)
	if actor.Name != "" {
		return actor, nil
	}
	if actor, err := a.session(r); err != nil || actor.Name != "" {
		return actor, err
	}
	return operate.Actor{}, unknown
}

var errScheme = errors.New("the header Authorization is not a bearer token: want Bearer duly_…")

// session is the actor of a session that was begun here; one that is over has none.
func (a *Auth) session(r *http.Request) (operate.Actor, error) {
	if a.sessions == nil {
		return operate.Actor{}, nil
	}
	cookie, err := r.Cookie(a.sessions.Cookie.Name)
	if err != nil {
		return operate.Actor{}, nil
	}
	ctx, err := a.sessions.Load(withSource(r), cookie.Value)
	if errors.Is(err, errTooMany) || errors.Is(err, errStore) {
		return operate.Actor{}, err
	}
	if err != nil {
		return operate.Actor{}, nil // what cannot be read is no session
	}
	if id := a.sessions.GetString(ctx, "token"); id != "" {
		token, err := a.tokens.byID(withSource(r), id)
		if errors.Is(err, errToken) {
			return operate.Actor{}, nil // the page for signing in says what to do
		}
		return operate.Actor{Name: token.Name, Role: token.Role, Via: "console", Labels: token.Labels}, err
	}
	if a.provider == nil { // it is of a time when people could sign in
		return operate.Actor{}, nil
	}
	return operate.Actor{Name: a.sessions.GetString(ctx, "name"), Role: operate.Role(a.sessions.GetString(ctx, "role")), Via: "console"}, nil
}

// begin begins a session in which the values are kept, under a new id. It ends after its time, or before. Error:
// *operate.Refusal, 429: its owner has too many, or begins them too often.
func (a *Auth) begin(w http.ResponseWriter, r *http.Request, owner string, before time.Time, values map[string]string) error {
	if !a.begun.Allow(a.cfg.Now(), owner) {
		return &operate.Refusal{Code: http.StatusTooManyRequests, Detail: "too many sign-ins, wait a minute", RetryMS: beginEach.Milliseconds()}
	}
	ctx, err := a.sessions.Load(context.WithValue(r.Context(), ownerKey{}, owner), "")
	if err != nil {
		return err
	}
	if until := a.cfg.Now().Add(sessionFor); before.IsZero() || until.Before(before) {
		before = until
	}
	a.sessions.SetDeadline(ctx, before)
	for name, value := range values {
		a.sessions.Put(ctx, name, value)
	}
	token, expires, err := a.sessions.Commit(ctx)
	if err != nil {
		return err
	}
	a.sessions.WriteSessionCookie(ctx, w, token, expires)
	return nil
}

// end ends the session of a request.
func (a *Auth) end(w http.ResponseWriter, r *http.Request) error {
	cookie, err := r.Cookie(a.sessions.Cookie.Name)
	if err != nil {
		return nil
	}
	ctx, err := a.sessions.Load(r.Context(), cookie.Value)
	if err != nil {
		return err
	}
	if err := a.sessions.Destroy(ctx); err != nil {
		return err
	}
	a.sessions.WriteSessionCookie(ctx, w, "", time.Time{})
	return nil
}

// deny answers credentials that do not hold.
func (a *Auth) deny(w http.ResponseWriter, r *http.Request, err error) {
	a.refused(r, err)
	switch {
	case errors.Is(err, errNoRole):
		a.cfg.Refuse(w, r, &operate.Refusal{Code: http.StatusForbidden, Detail: err.Error()})
	case errors.Is(err, errTooMany):
		a.cfg.Refuse(w, r, &operate.Refusal{Code: http.StatusTooManyRequests, Detail: err.Error() + "; ask again", RetryMS: retryTokens.Milliseconds()})
	case errors.Is(err, errStore):
		a.cfg.Refuse(w, r, &operate.Refusal{Code: http.StatusServiceUnavailable, Detail: err.Error() + ", because the state store did not answer; ask again", RetryMS: retryStore.Milliseconds()})
	default:
		w.Header().Set("WWW-Authenticate", `Bearer realm="duly", error="invalid_token"`)
		a.cfg.Refuse(w, r, &operate.Refusal{Code: http.StatusUnauthorized, Detail: err.Error()})
	}
}

// refused logs credentials that do not hold, and nothing of them but who, in more; a source that shows many fills no log.
func (a *Auth) refused(r *http.Request, err error, more ...any) {
	if !errors.Is(err, errStore) && a.told.Allow(a.cfg.Now(), sourceOf(withSource(r))) {
		a.cfg.Log.Warn("credentials were refused", append([]any{"from", from(r), "path", core.ShortText(r.URL.Path, pathMax), "error", err}, more...)...)
	}
}

// pathMax bounds the path of a request in the log.
const pathMax = 128

// from is the address that a request came from.
func from(r *http.Request) string { return hostOf(r.RemoteAddr) }

func hostOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// refuse answers a problem document (RFC 9457).
func refuse(w http.ResponseWriter, _ *http.Request, bad *operate.Refusal) {
	body, err := json.Marshal(map[string]any{
		"type": "about:blank", "title": http.StatusText(bad.Code), "status": bad.Code, "detail": bad.Detail,
	})
	if err != nil {
		body = nil // strings and numbers always marshal
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(bad.Code)
	_, _ = w.Write(append(body, '\n')) // an error is a client that went away
}

// Headers tells browsers of every answer that it is no script, is not shown in another page, and may load and send
// nothing but from and to here: no script that stands in a page itself, and none made of text.
func Headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// contentPolicy is the content security policy of every answer.
const contentPolicy = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"

// whom is how a person is named: an address that the provider has verified, or the provider's own id, which is marked
// where it could be taken for an address.
func whom(subject, email string, verified bool) string {
	name := subject
	if strings.Contains(name, "@") {
		name = "id:" + name
	}
	if verified && email != "" {
		name = email
	}
	return cleanName(name)
}

// cleanName is a name as the trail has it.
func cleanName(name string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return -1
		}
		return c
	}, strings.ToValidUTF8(cmp.Or(name, "unnamed"), ""))
}
