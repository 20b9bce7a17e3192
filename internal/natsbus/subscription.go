package natsbus

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Pending limits of a subscription. Beyond them the client library drops; see
// Conn.Dropped.
const (
	pendingMessagesMax = 1 << 20
	pendingBytesMax    = 512 << 20
)

const (
	subscribeFlush = 2 * time.Second
	stopTimeout    = 5 * time.Second
)

// setPending is SetPendingLimits; tests replace it.
var setPending = (*nats.Subscription).SetPendingLimits

// limitPending bounds what may wait for a subscription's callback. If that fails it ends the subscription.
func limitPending(sub *nats.Subscription, messages, bytes int) error {
	err := setPending(sub, messages, bytes)
	if err != nil {
		_ = sub.Unsubscribe() // gone already is fine
	}
	return err
}

// How much may wait for the callback of the request endpoint: some 100 ms of its work. Those who ask wait for seconds only; with
// a longer queue every answer would come when its asker has given up.
const (
	requestsMessagesMax = 1 << 14
	requestsBytesMax    = 64 << 20
)

// Subscription is a callback that listens to a subject.
type Subscription struct {
	conn *Conn
	sub  *nats.Subscription
	// asks is whether its messages are requests: those that are dropped are repeated by their senders.
	asks bool
	// gone is closed when the callback has run for the last time.
	gone chan struct{}
	once sync.Once
}

// subscribe listens to a subject, and returns when the server knows about it.
func (c *Conn) subscribe(subject, queue string, callback nats.MsgHandler) (*Subscription, error) {
	return c.listen(&Subscription{}, subject, queue, callback, pendingMessagesMax, pendingBytesMax)
}

// subscribeRequests is subscribe for requests, of which fewer may wait.
func (c *Conn) subscribeRequests(subject, queue string, callback nats.MsgHandler) (*Subscription, error) {
	return c.listen(&Subscription{asks: true}, subject, queue, callback, requestsMessagesMax, requestsBytesMax)
}

// listen makes s the subscription to a subject, with bounds for what may wait.
func (c *Conn) listen(s *Subscription, subject, queue string, callback nats.MsgHandler, messages, bytes int) (_ *Subscription, err error) {
	s.conn, s.gone = c, make(chan struct{})
	if queue == "" {
		s.sub, err = c.nc.Subscribe(subject, callback)
	} else {
		s.sub, err = c.nc.QueueSubscribe(subject, queue, callback)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	s.sub.SetClosedHandler(func(string) { close(s.gone) })
	if err := limitPending(s.sub, messages, bytes); err != nil {
		return nil, fmt.Errorf("subscribe to %s: pending limits: %w", subject, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.unsubscribe()
		return nil, fmt.Errorf("subscribe to %s: %w", subject, ErrClosed)
	}
	c.subs[s] = struct{}{}
	// Without a server just now the subscription reaches the next one.
	_ = c.nc.FlushTimeout(subscribeFlush)
	return s, nil
}

// Stop takes nothing more, lets the callback finish what has arrived, and returns when it has run for the
// last time. It must not be called from the callback.
func (s *Subscription) Stop() {
	s.once.Do(func() {
		dropped := s.drops() // the library forgets it with the subscription
		// Without a server Drain would wait for one, and nothing more can come.
		if !s.conn.nc.IsConnected() || s.sub.Drain() != nil {
			s.unsubscribe()
		}
		if !s.await() {
			s.conn.log.Warn("a subscription did not finish in time; what it has is dropped", "subject", s.sub.Subject)
			s.unsubscribe()
			s.await()
		}
		s.conn.mu.Lock()
		defer s.conn.mu.Unlock()
		if s.asks {
			s.conn.turnedAway.Add(dropped)
		} else {
			s.conn.dropped.Add(dropped)
		}
		delete(s.conn.subs, s)
	})
}

// unsubscribe drops what is pending. Its only error says that it is gone already.
func (s *Subscription) unsubscribe() { _ = s.sub.Unsubscribe() }

// await waits for the callback's last run, and reports false if that takes too long.
func (s *Subscription) await() bool {
	timer := time.NewTimer(s.conn.patience(stopTimeout))
	defer timer.Stop()
	select {
	case <-s.gone:
		return true
	case <-timer.C:
		return false
	}
}

// drops counts dropped messages; 0 for a subscription that has ended.
func (s *Subscription) drops() int64 {
	n, err := s.sub.Dropped()
	if err != nil {
		return 0
	}
	return int64(n)
}
