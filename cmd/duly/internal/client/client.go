// Package client asks a node's HTTP API. Its errors say whether the node was reached and what it answered, so that a
// command can end with the exit status that is documented for it.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"duly.dev/duly/internal/egress"
	"duly.dev/duly/internal/say"
)

// Limits of an answer.
const (
	answerBytesMax  = 64 << 20
	problemBytesMax = 1 << 20
	handshakeMax    = 10 * time.Second
	idleMax         = time.Minute
)

// HeaderKey is the header of a key under which a request is carried out once.
const HeaderKey = "Idempotency-Key"

// Client asks one node. Its methods may be called from any goroutine.
type Client struct {
	Base    string        // address of the node's HTTP server
	Token   string        // of the API; empty: none is sent
	Timeout time.Duration // of one answer; a stream of events has none

	By http.RoundTripper // nil: http.DefaultTransport
}

// Transport is the usual one with TLS of its own.
func Transport(secure *tls.Config) http.RoundTripper {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, ForceAttemptHTTP2: true, TLSHandshakeTimeout: handshakeMax, IdleConnTimeout: idleMax}
}

func (c *Client) http() *http.Client {
	return &http.Client{Transport: c.By, CheckRedirect: egress.SameOrigin}
}

// Problem is an answer that is an error: a problem document of RFC 9457.
type Problem struct {
	Status   int      `json:"status"`
	Title    string   `json:"title"`
	Detail   string   `json:"detail"`
	Field    string   `json:"field"`
	Possible []string `json:"possible"` // of 409: what may be asked in the task's state
	RetryMS  int64    `json:"retry_ms"`
}

// Error is the detail, what is possible instead, and the status.
func (p *Problem) Error() string {
	text := p.Detail
	if len(p.Possible) > 0 && !strings.Contains(text, "possible") {
		text += "; possible now: " + strings.Join(p.Possible, ", ")
	}
	return fmt.Sprintf("%s (%d)", text, p.Status)
}

// UnreachableError says that there was no answer.
type UnreachableError struct {
	Address string
	Err     error
}

// Error says where the node was looked for and why it was not found.
func (u *UnreachableError) Error() string {
	id := "cli.unreachable"
	switch {
	case errors.Is(u.Err, context.DeadlineExceeded):
		id = "cli.silent"
	case errors.Is(u.Err, io.EOF), errors.Is(u.Err, io.ErrUnexpectedEOF), errors.Is(u.Err, syscall.ECONNRESET):
		id = "cli.cut"
	}
	return say.Of(id, "address", u.Address, "error", u.Err)
}

// Unwrap is the reason.
func (u *UnreachableError) Unwrap() error { return u.Err }

// Request is one request.
type Request struct {
	Method string
	Path   string // from /v1 on, escaped
	Query  url.Values
	Body   []byte    // JSON; nil: none
	Stream io.Reader // instead of Body: lines of JSON, sent while the answer is read
	Header map[string]string
}

type tellingKey struct{}

// Telling has to called with where a request was taken that is no reading: the base of the node's address.
func Telling(ctx context.Context, to func(base string)) context.Context {
	return context.WithValue(ctx, tellingKey{}, to)
}

// Do makes one request and returns the body of a good answer. Errors: *Problem, *UnreachableError.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax+1))
	if err != nil {
		return nil, &UnreachableError{c.Base, fmt.Errorf("its answer broke off: %w", err)}
	}
	if len(data) > answerBytesMax {
		return nil, fmt.Errorf("the answer of %s has more than %d bytes: ask for less, with --limit", c.Base, answerBytesMax)
	}
	return data, nil
}

// Open makes one request whose good answer the caller reads, and closes. Timeout bounds the time until it begins. Errors:
// *Problem, *UnreachableError.
func (c *Client) Open(ctx context.Context, r Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.Timeout, func() { cancel(fmt.Errorf("no answer in %v", c.Timeout)) })
	resp, err := c.send(ctx, r)
	if !late.Stop() || err != nil {
		cancel(nil)
	}
	if err != nil {
		return nil, err
	}
	resp.Body = &closer{resp.Body, func() { cancel(nil) }}
	return resp, nil
}

// closer is a body that ends its request.
type closer struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (c *closer) Close() error {
	defer c.end()
	return c.ReadCloser.Close()
}

// send makes a request and refuses an answer that is an error.
func (c *Client) send(ctx context.Context, r Request) (*http.Response, error) {
	address := strings.TrimSuffix(c.Base, "/") + r.Path
	if len(r.Query) > 0 {
		address += "?" + r.Query.Encode()
	}
	var body io.Reader = bytes.NewReader(r.Body)
	if r.Stream != nil {
		body = r.Stream
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, address, body)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", c.Base, err)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Stream != nil {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &Problem{Status: http.StatusUnauthorized, Detail: say.Of("cli.bad-token")}
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for k, v := range r.Header {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := c.http().Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // its text has the address once more
	}
	if err != nil {
		return nil, &UnreachableError{c.Base, err}
	}
	if resp.StatusCode < 300 {
		if to, asked := ctx.Value(tellingKey{}).(func(string)); asked && r.Method != "" && r.Method != http.MethodGet {
			to(c.Base)
		}
		return resp, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, problemBytesMax))
	var p Problem
	if err != nil || json.Unmarshal(data, &p) != nil || p.Detail == "" {
		p = Problem{Detail: fmt.Sprintf("%s answered %s", c.Base, resp.Status)}
	}
	p.Status = resp.StatusCode
	if p.Status == http.StatusUnauthorized && c.Token == "" {
		p.Detail = say.Of("cli.no-token")
	}
	return nil, &p
}
