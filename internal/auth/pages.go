package auth

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"

	"duly.dev/duly/internal/operate"
)

// The paths for signing in and out.
const (
	PathSignIn   = "/login" // GET: the page; POST: with a token, field token
	PathLeave    = "/login/oidc"
	PathCallback = "/login/callback"
	PathSignOut  = "/logout" // POST
)

// formBytesMax bounds what a form for signing in sends.
const formBytesMax = 8 << 10

// signIn is what the page for signing in shows.
type signIn struct {
	Message string // why the person is here; may be empty
	Form    string // where the form with the field token is posted to
	OIDC    string // where the identity provider is reached; empty: there is none
	Next    string // field next of the form: where to lead then
}

// Mount serves the pages for signing in and out. Where authentication is off, or no session is kept, there are none.
func (a *Auth) Mount(mux *http.ServeMux) {
	if a.sessions == nil {
		return
	}
	// A page of another site must not sign a person in, or out.
	guarded := func(serve http.HandlerFunc) http.Handler { return a.foreign.Handler(serve) }
	mux.Handle("GET "+PathSignIn, guarded(func(w http.ResponseWriter, r *http.Request) { a.page(w, r, http.StatusOK, "") }))
	mux.Handle("POST "+PathSignIn, guarded(a.signIn))
	mux.Handle("POST "+PathSignOut, guarded(func(w http.ResponseWriter, r *http.Request) {
		if err := a.end(w, r); err != nil {
			a.cfg.Log.Warn("a session could not end", "error", err)
		}
		http.Redirect(w, r, a.at(PathSignIn), http.StatusSeeOther)
	}))
	if a.provider != nil {
		mux.Handle("GET "+PathLeave, guarded(a.leave))
		mux.Handle("GET "+PathCallback, guarded(a.back))
	}
}

// SignInURL is where a browser without an actor is led to, which leads back to next then.
func (a *Auth) SignInURL(next string) string {
	return a.at(PathSignIn) + "?" + url.Values{"next": {ownPath(next)}}.Encode()
}

// signIn begins a session with a token.
func (a *Auth) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	if err := r.ParseForm(); err != nil {
		a.page(w, r, http.StatusBadRequest, "The form could not be read.")
		return
	}
	token, err := a.tokens.check(withSource(r), r.PostForm.Get("token"))
	if err != nil {
		a.refused(r, err)
	}
	switch {
	case errors.Is(err, errToken):
		a.page(w, r, http.StatusUnauthorized, "This token is not valid: unknown, expired or revoked.")
		return
	case err != nil:
		a.page(w, r, http.StatusServiceUnavailable, "The token could not be looked up. Try again in a moment.")
		return
	}
	if token.Role == operate.RoleClient {
		a.refused(r, errors.New("a service's token was shown to sign in with"), "name", token.Name, "token", token.ID)
		a.page(w, r, http.StatusForbidden, "This token is a service's: its role is client, which has no pages here.")
		return
	}
	if err := a.begin(w, r, token.ID, token.Expires, map[string]string{"token": token.ID}); err != nil {
		a.notBegun(w, r, err)
		return
	}
	a.cfg.Log.Info("signed in", "name", token.Name, "role", token.Role, "token", token.ID, "from", from(r))
	http.Redirect(w, r, a.at(ownPath(r.PostForm.Get("next"))), http.StatusSeeOther)
}

// notBegun tells why a session could not begin.
func (a *Auth) notBegun(w http.ResponseWriter, r *http.Request, err error) {
	if bad, is := errors.AsType[*operate.Refusal](err); is {
		a.page(w, r, bad.Code, "You cannot sign in now: "+bad.Detail+".")
		return
	}
	a.cfg.Log.Error("a session could not begin", "error", err)
	a.page(w, r, http.StatusInternalServerError, "The session could not begin. Try again.")
}

// page shows the page for signing in.
func (a *Auth) page(w http.ResponseWriter, r *http.Request, status int, message string) {
	next := r.PostForm.Get("next") // of a form that was read
	if next == "" {
		next = r.URL.Query().Get("next")
	}
	page := signIn{Message: message, Form: a.at(PathSignIn), Next: ownPath(next)}
	if a.provider != nil {
		page.OIDC = a.at(PathLeave) + "?" + url.Values{"next": {page.Next}}.Encode()
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = plain.Execute(w, page) // an error is a client that went away
}

// plain is the page: no style and no script, so that the policy has nothing to forbid.
var plain = template.Must(template.New("login").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Duly: sign in</title></head>
<body>
<main>
<h1>Sign in to Duly</h1>
{{with .Message}}<p role="alert">{{.}}</p>{{end}}
{{with .OIDC}}<p><a href="{{.}}">Sign in with your organisation's account</a></p>{{end}}
<form method="post" action="{{.Form}}">
<input type="hidden" name="next" value="{{.Next}}">
<p><label>Token <input type="password" name="token" autocomplete="off" required></label></p>
<p><button>Sign in</button></p>
</form>
</main>
</body>
</html>
`))
