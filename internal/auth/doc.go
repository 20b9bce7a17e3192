// Package auth says who asks: bearer tokens, sessions of an identity provider, or, where authentication is off, the
// local actor. [Auth.Middleware] puts an [operate.Actor] into the context of a request; what the actor may do is decided
// where the route is.
//
//	NewToken, CreateToken     a token and its secret, which is shown once
//	New(Config)               the middleware, the pages for signing in and out
//	Headers                   what a browser is told of every answer
//
// A request without credentials has no actor. One with credentials that do not hold is refused here.
package auth
