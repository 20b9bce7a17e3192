package httpagent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// service is one HTTP service: an address, and what it bears. Its limits are those of this process.
type service struct {
	name      string
	base      *url.URL // without a slash at its end
	auth      *auth    // nil: none
	headers   [][2]string
	allow     addresses
	redirects []string // hosts, in lower case
	answerMax int      // bytes
	limits    limits

	transport *http.Transport
	client    *http.Client
	run       failsafe.Executor[[]byte]
}

// limits are what a service bears.
type limits struct {
	tries      int // of one command
	backoff    time.Duration
	backoffCap time.Duration
	concurrent int           // requests at a time; 0: any number
	rate       int           // requests a second; 0: any number
	wait       time.Duration // for either of the two
	breaker    *breaker      // nil: none
}

// breaker says when a service is left alone.
type breaker struct {
	percent int           // of failures
	calls   int           // at least so many
	within  time.Duration // in that time
	open    time.Duration // how long until one request tries it again
}

// limit makes what runs the requests: tries around rate, bulkhead and breaker. The breaker is innermost, as it counts every
// outcome that is no failure of the service for a success: what the other two refuse says nothing of the service.
func (s *service) limit() {
	l := &s.limits
	var policies []failsafe.Policy[[]byte]
	if l.tries > 1 {
		policies = append(policies, retrypolicy.NewBuilder[[]byte]().
			HandleIf(func(_ []byte, err error) bool { f, is := err.(*failure); return is && f.again }).
			ReturnLastFailure().WithMaxAttempts(l.tries).
			WithDelayFunc(func(e failsafe.ExecutionAttempt[[]byte]) time.Duration {
				if f, is := errors.AsType[*failure](e.LastError()); is {
					return f.pause
				}
				return l.backoff
			}).Build())
	}
	if l.rate > 0 {
		policies = append(policies, ratelimiter.NewSmoothBuilder[[]byte](uint(l.rate), time.Second).WithMaxWaitTime(l.wait).Build())
	}
	if l.concurrent > 0 {
		policies = append(policies, bulkhead.NewBuilder[[]byte](uint(l.concurrent)).WithMaxWaitTime(l.wait).Build())
	}
	if b := l.breaker; b != nil {
		policies = append(policies, circuitbreaker.NewBuilder[[]byte]().
			HandleIf(func(_ []byte, err error) bool { f, is := err.(*failure); return is && f.ill }).
			WithFailureRateThreshold(float64(b.percent)/100, uint(b.calls), b.within).
			WithSuccessThreshold(1).WithDelay(b.open).Build())
	}
	s.run = failsafe.With(policies...)
}

// failure is what one try came to, or a request that could not be made.
type failure struct {
	code     int   // of the reply
	err      error // without secrets
	harmless bool  // it had no effect
	again    bool  // another try in the same command can help, and has time
	ill      bool  // the service is ill, which a breaker counts
	pause    time.Duration
	after    time.Duration // the service's wish
}

// Error implements error.
func (f *failure) Error() string { return f.err.Error() }

// final reports whether the scheduler takes it for one.
func (f *failure) final() bool { return core.LastCode(f.code) }

// refusal is an error of the limits, as a reply has it; any other is passed on.
func (s *service) refusal(err error) error {
	if f, is := errors.AsType[*failure](err); is {
		return &agents.Error{Code: f.code, Err: f.err}
	}
	coded := func(code int, text string, args ...any) error {
		return &agents.Error{Code: code, Err: fmt.Errorf("service %s: %s", s.name, fmt.Sprintf(text, args...))}
	}
	switch {
	case errors.Is(err, circuitbreaker.ErrOpen):
		return coded(core.CodeUnavailable, "its breaker is open: over %d %% of its requests failed, and it is left alone for %v", s.limits.breaker.percent, s.limits.breaker.open)
	case errors.Is(err, bulkhead.ErrFull):
		return coded(core.CodeTooMany, "%d requests are under way, which is concurrent", s.limits.concurrent)
	case errors.Is(err, ratelimiter.ErrExceeded):
		return coded(core.CodeTooMany, "the rate of %d requests a second is used up", s.limits.rate)
	}
	return fmt.Errorf("service %s: %w", s.name, err)
}

// caBytesMax bounds a file of authorities.
const caBytesMax = 4 << 20

// files are those of a service's TLS; empty: the system's authorities, no certificate.
type files struct{ ca, cert, key, name string }

// config reads the authorities, and the client's certificate once to see that it is there: it is read again for each
// connection.
func (f *files) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.name}
	if f.ca != "" {
		data, err := readFile(f.ca, caBytesMax)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("cert and key go together: one is given, want both or none")
	}
	if f.cert != "" {
		read := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.cert, f.key)
			if err != nil {
				return nil, fmt.Errorf("cert and key: %w", err)
			}
			return &pair, nil
		}
		if _, err := read(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	}
	return c, nil
}

// close ends connections that are not in use.
func (s *service) close() { s.transport.CloseIdleConnections() }

// timeLeft is how long a context lasts; ok is false where it has no end.
func timeLeft(ctx context.Context) (d time.Duration, ok bool) {
	by, ok := ctx.Deadline()
	return time.Until(by), ok
}
