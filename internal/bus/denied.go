package bus

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go"
)

// hooking is held while error handlers of connections are replaced, here and by the
// library of services: each reads the handler before it and calls that one too.
var hooking sync.Mutex

// deniedSubject finds the subject in the server's word that a subscription is not allowed.
var deniedSubject = regexp.MustCompile(`Subscription to "(\S+)"`)

// listenForDenials hears from now on what the server says about subscriptions of a
// connection that its user may not make. The library reports it to the connection's
// error handler alone, some time after the subscription seemed to be made.
func (c *Conn) listenForDenials() {
	hooking.Lock()
	defer hooking.Unlock()
	before := c.nc.ErrorHandler()
	c.nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		c.denied(err)
		if before != nil {
			before(nc, sub, err)
		}
	})
}

// denied tells the service whose subject the error is about.
func (c *Conn) denied(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.served[found[1]]; s != nil {
		select {
		case s.denials <- fmt.Errorf("agent %s may not subscribe to %s: %w", s.agent, found[1], err):
		default: // one is enough
		}
	}
}
