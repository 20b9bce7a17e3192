package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	pullMessages = 512              // asked for ahead of their use, at most
	pullExpiry   = 10 * time.Second // of a request
	pullBeat     = time.Second      // how often the server says meanwhile that it is there
	pullRoom     = 64               // for what comes beside messages: heartbeats and ends of three requests
)

// errMute says that the consumer, its server or the network is away.
var errMute = errors.New("nothing is heard of the consumer")

// puller asks a consumer for messages. The library's own iterator has no room for heartbeats beside the messages that it asks
// for, and drops messages where its user is slow.
type puller struct {
	nc      *nats.Conn
	subject string // of requests
	sub     *nats.Subscription
	in      chan *nats.Msg
	bytes   int // of one request
	asked   int // messages that requests still allow
	timer   *time.Timer
}

func newPuller(nc *nats.Conn, stream, consumer string, bytes int) (*puller, error) {
	p := &puller{nc: nc, subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer, in: make(chan *nats.Msg, pullMessages+pullRoom), bytes: bytes,
		timer: time.NewTimer(time.Hour)}
	var err error
	p.sub, err = nc.ChanSubscribe(nc.NewInbox(), p.in)
	return p, err
}

func (p *puller) close() {
	p.timer.Stop()
	_ = p.sub.Unsubscribe() // gone already is fine
}

// ask requests more when half is used up.
func (p *puller) ask() error {
	want := pullMessages - p.asked
	if want < pullMessages/2 {
		return nil
	}
	data, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		MaxBytes  int           `json:"max_bytes"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{want, p.bytes, pullExpiry, pullBeat})
	if err == nil {
		err = p.nc.PublishRequest(p.subject, p.sub.Subject, data)
	}
	if err != nil {
		return fmt.Errorf("ask for messages: %w", err)
	}
	p.asked += want
	return nil
}

// next waits for a message. Any error ends the puller's use.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	for {
		if err := p.ask(); err != nil {
			return nil, err
		}
		p.timer.Reset(2 * pullBeat)
		var msg *nats.Msg
		select {
		case msg = <-p.in:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.timer.C:
			return nil, errMute
		}
		if msg == nil {
			return nil, nats.ErrConnectionClosed
		}
		if len(msg.Data) > 0 || msg.Header.Get("Status") == "" {
			p.asked--
			return msg, nil
		}
		if err := p.status(msg.Header); err != nil {
			return nil, err
		}
	}
}

// status takes what the server says of a request. One that ends, by its time or its bytes, says what it has left out.
func (p *puller) status(h nats.Header) error {
	const heartbeat = "100"
	if h.Get("Status") == heartbeat {
		return nil
	}
	left, err := strconv.Atoi(h.Get("Nats-Pending-Messages"))
	if err != nil {
		return fmt.Errorf("the consumer says %s %s", h.Get("Status"), h.Get("Description"))
	}
	p.asked = max(0, p.asked-left)
	return nil
}
