package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits of a stream of events.
const (
	eventBytesMax = 8 << 20
	retryFirst    = 500 * time.Millisecond
	retryMost     = 10 * time.Second
	// silenceMax is how long a stream may say nothing, not even a comment, before it is taken for dead.
	silenceMax = 90 * time.Second
)

// HeaderLast is the header of the event to go on after.
const HeaderLast = "Last-Event-ID"

// nameDropped is an event that says why a stream ends.
const nameDropped = "dropped"

// ErrStop ends a Follow without an error.
var ErrStop = errors.New("stop")

// Event is one server-sent event.
type Event struct {
	ID   string
	Name string // empty: message
	Data []byte
}

// Follow calls each with the events of a stream until ctx ends or each returns an error: ErrStop ends it well. A stream
// that breaks is begun again where it broke, with Last-Event-ID; lost hears why, and nil when it is there again. Errors:
// a *Problem that will not go away by itself, and what each returned.
func (c *Client) Follow(ctx context.Context, r Request, each func(Event) error, lost func(error)) error {
	s := stream{client: c, request: r, each: each, retry: retryFirst, last: r.Header[HeaderLast]}
	wait, broken := s.retry, false
	for {
		s.begun = func() {
			wait = s.retry
			if broken {
				broken = false
				lost(nil)
			}
		}
		err := s.read(ctx)
		var refused *Problem
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrStop):
			return nil
		case s.failed != nil:
			return s.failed
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests:
			return err
		}
		if !broken {
			broken = true
			lost(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		wait = min(2*wait, retryMost)
	}
}

// stream is one Follow.
type stream struct {
	client  *Client
	request Request
	each    func(Event) error
	begun   func()
	last    string // id of the last event
	retry   time.Duration
	failed  error // what each returned
}

// read reads one connection until it ends.
func (s *stream) read(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silenceMax, func() { cancel(fmt.Errorf("nothing heard for %v", silenceMax)) })
	defer silence.Stop()
	r := s.request
	r.Method = http.MethodGet
	r.Header = map[string]string{"Accept": "text/event-stream", HeaderLast: s.last}
	resp, err := s.client.send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s.begun()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), eventBytesMax)
	var e Event
	for lines.Scan() {
		silence.Reset(silenceMax)
		if line := lines.Text(); line != "" {
			s.field(&e, line)
			continue
		}
		if e.ID != "" { // not before: an event that is cut off comes again
			s.last = e.ID
		}
		switch {
		case e.Name == nameDropped:
			p := Problem{Status: http.StatusServiceUnavailable, Detail: string(e.Data)}
			_ = json.Unmarshal(e.Data, &p) // what is no problem document is shown as it is
			return &p
		case e.Data != nil:
			if err := s.each(e); err != nil {
				if !errors.Is(err, ErrStop) {
					s.failed = err
				}
				return err
			}
		}
		e = Event{}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("events of %s: %w", s.client.Base, err)
	}
	return fmt.Errorf("events of %s: the stream ended", s.client.Base)
}

// field takes one line of an event in.
func (s *stream) field(e *Event, line string) {
	name, value, _ := strings.Cut(line, ":") // a comment has no name
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		e.ID = value
	case "event":
		e.Name = value
	case "data":
		if e.Data != nil {
			e.Data = append(e.Data, '\n')
		}
		e.Data = append(e.Data, value...)
		if e.Data == nil {
			e.Data = []byte{}
		}
	case "retry":
		if ms, err := strconv.Atoi(value); err == nil && ms > 0 {
			s.retry = min(time.Duration(ms)*time.Millisecond, retryMost)
		}
	}
}
