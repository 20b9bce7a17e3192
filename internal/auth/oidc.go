package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"

	"duly.dev/duly/internal/egress"
	"duly.dev/duly/internal/operate"
)

// Provider is an identity provider and what its groups may do here.
type Provider struct {
	Issuer   string // its URL, as in its tokens
	ClientID string
	Secret   string // empty: a public client; the code is bound to the browser in either case
	Claim    string // that has the groups; empty: groups
	// Groups are the groups of each role: viewer, operator, admin. A person has the highest.
	Groups map[operate.Role][]string
}

// Bounds of what is asked of a provider.
const (
	providerMax = 10 * time.Second
	loginFor    = 10 * time.Minute // from here to the provider and back
	nextMax     = 2000             // bytes of the address that is led back to
)

// provider is an identity provider that is looked for when it is needed first.
type provider struct {
	cfg      Provider
	callback string
	limit    *rate.Limiter    // codes that it is asked about: anyone can show some that were made up
	from     *operate.Buckets // the same, of one source

	turn  chan struct{} // has an element while found is looked for or read
	found *oidc.Provider
}

func newProvider(cfg Provider, base *url.URL) (*provider, error) {
	cfg.Claim = cmp.Or(cfg.Claim, "groups")
	switch {
	case base == nil:
		return nil, errors.New("http-url: not given, but the identity provider leads people back there")
	case cfg.Issuer == "" || cfg.ClientID == "":
		return nil, errors.New("oidc-issuer and oidc-client-id: not given, but --auth oidc needs both")
	}
	roles := 0
	for _, groups := range cfg.Groups {
		roles += len(groups)
	}
	if roles == 0 {
		return nil, errors.New("oidc-viewers, oidc-operators and oidc-admins: no group is given, so no one could do anything")
	}
	return &provider{cfg: cfg, callback: strings.TrimSuffix(base.String(), "/") + PathCallback, turn: make(chan struct{}, 1),
		limit: rate.NewLimiter(unknownRate, unknownBurst), from: operate.NewBuckets(sourceEach, sourceBurst)}, nil
}

// get finds the provider; what failed is tried again with the next who signs in. Who waits for another's look waits no
// longer than ctx.
func (p *provider) get(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("identity provider %s: %w", p.cfg.Issuer, ctx.Err())
	}
	if p.found == nil {
		// The provider keeps the context for reading keys later.
		found, err := oidc.NewProvider(asking(context.WithoutCancel(ctx)), p.cfg.Issuer)
		if err != nil {
			return nil, nil, fmt.Errorf("identity provider %s: %w", p.cfg.Issuer, err)
		}
		p.found = found
	}
	return p.found, &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.Secret, Endpoint: p.found.Endpoint(), RedirectURL: p.callback,
		Scopes: []string{oidc.ScopeOpenID, "email", "profile", "groups"},
	}, nil
}

// asking has what is asked of a provider within a context leave by a client of ours.
func asking(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, &http.Client{Timeout: providerMax, CheckRedirect: egress.SameOrigin})
}

// role is the highest that the groups of a claim have; empty: none.
func (p *provider) role(claim any) operate.Role {
	var groups []string
	switch said := claim.(type) {
	case string:
		groups = []string{said}
	case []any:
		for _, one := range said {
			if name, ok := one.(string); ok {
				groups = append(groups, name)
			}
		}
	}
	for _, role := range []operate.Role{operate.RoleAdmin, operate.RoleOperator, operate.RoleViewer} {
		for _, group := range groups {
			if slices.Contains(p.cfg.Groups[role], group) {
				return role
			}
		}
	}
	return ""
}

// leave leads a person to the provider. What has to come back unchanged is kept in a cookie of the browser, so that
// nothing is kept here for those who have yet to sign in.
func (a *Auth) leave(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), providerMax)
	defer cancel()
	_, config, err := a.provider.get(ctx)
	if err != nil {
		a.refused(r, err)
		a.page(w, r, http.StatusBadGateway, "The identity provider does not answer. Try again in a moment.")
		return
	}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	kept := url.Values{"state": {state}, "nonce": {nonce}, "verifier": {verifier}, "next": {ownPath(r.URL.Query().Get("next"))}}
	http.SetCookie(w, &http.Cookie{
		Name: a.cookie("duly-login"), Value: kept.Encode(), Path: "/", MaxAge: int(loginFor.Seconds()), HttpOnly: true, Secure: a.secure(), SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), http.StatusSeeOther)
}

// back takes a person who comes from the provider.
func (a *Auth) back(w http.ResponseWriter, r *http.Request) {
	cookie, err := r.Cookie(a.cookie("duly-login"))
	if err != nil {
		a.page(w, r, http.StatusBadRequest, "Signing in took too long, or was begun elsewhere. Begin again.")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookie.Name, Path: "/", MaxAge: -1, HttpOnly: true, Secure: a.secure(), SameSite: http.SameSiteLaxMode})
	kept, err := url.ParseQuery(cookie.Value)
	state := r.URL.Query().Get("state")
	if err != nil || state == "" || subtle.ConstantTimeCompare([]byte(kept.Get("state")), []byte(state)) != 1 {
		a.page(w, r, http.StatusBadRequest, "This answer belongs to another sign-in. Begin again.")
		return
	}
	who, err := a.exchange(r, kept)
	if err != nil {
		a.refused(r, err)
	}
	switch {
	case errors.Is(err, errTooMany):
		a.page(w, r, http.StatusTooManyRequests, "Too many sign in from where you are. Try again in a moment.")
		return
	case err != nil:
		a.page(w, r, http.StatusForbidden, "The identity provider did not confirm who you are. Begin again.")
		return
	case who.role == "":
		a.refused(r, errors.New("a person without a role: "+who.lacks), "name", who.name)
		a.page(w, r, http.StatusForbidden, "You are "+who.name+", and "+who.lacks+" Ask an admin of Duly.")
		return
	}
	if err := a.begin(w, r, operate.PersonOwner(who.name), time.Time{}, map[string]string{"name": who.name, "role": string(who.role)}); err != nil {
		a.notBegun(w, r, err)
		return
	}
	a.cfg.Log.Info("signed in", "name", who.name, "role", who.role, "from", from(r))
	http.Redirect(w, r, a.at(ownPath(kept.Get("next"))), http.StatusSeeOther)
}

// exchange asks the provider whom a code is of.
func (a *Auth) exchange(r *http.Request, kept url.Values) (who person, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), providerMax)
	defer cancel()
	if said := r.URL.Query().Get("error"); said != "" {
		return who, fmt.Errorf("the provider says %.80q", said)
	}
	now := a.cfg.Now()
	if !a.provider.from.Allow(now, sourceOf(withSource(r))) || !a.provider.limit.AllowN(now, 1) {
		return who, errTooMany
	}
	found, config, err := a.provider.get(ctx)
	if err != nil {
		return who, err
	}
	tokens, err := config.Exchange(asking(ctx), r.URL.Query().Get("code"), oauth2.VerifierOption(kept.Get("verifier")))
	if err != nil {
		return who, fmt.Errorf("exchange of the code: %w", err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	id, err := found.Verifier(&oidc.Config{ClientID: a.provider.cfg.ClientID, Now: a.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return who, fmt.Errorf("id token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(kept.Get("nonce"))) != 1 {
		return who, errors.New("id token: its nonce is another sign-in's")
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return who, fmt.Errorf("claims: %w", err)
	}
	return a.provider.personOf(id.Subject, claims), nil
}

// person is who signs in, and why without a role.
type person struct {
	name  string
	role  operate.Role // empty: none
	lacks string
}

// personOf reads what a provider says of a person. Only what has the meant form counts: true, or the text "true", has an
// address verified. A provider that leaves the groups out because they are many says where they are instead.
func (p *provider) personOf(subject string, claims map[string]any) person {
	email, _ := claims["email"].(string)
	groups, given := claims[p.cfg.Claim]
	who := person{name: whom(subject, email, isTrue(claims["email_verified"])), role: p.role(groups), lacks: "none of your groups has a role here."}
	elsewhere, _ := claims["_claim_names"].(map[string]any)
	_, left := elsewhere[p.cfg.Claim]
	switch {
	case given:
	case left || isTrue(claims["hasgroups"]):
		who.lacks = "the identity provider left your groups out, because there are too many: it has to name only those that count here, or roles in their place."
	default:
		who.lacks = "the identity provider says nothing of your groups (claim " + p.cfg.Claim + ")."
	}
	return who
}

// isTrue reports whether a claim is true, also where it is written as text.
func isTrue(claim any) bool {
	is, _ := claim.(bool)
	return is || claim == "true"
}

// ownPath is an address of this server to lead to: what would lead elsewhere is the first page.
func ownPath(next string) string {
	if len(next) > nextMax || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	if u, err := url.Parse(next); err != nil || u.Host != "" || u.Scheme != "" {
		return "/"
	}
	return next
}
