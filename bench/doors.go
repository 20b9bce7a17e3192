package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/wire"
)

// The doors at which the generator hands in.
const (
	doorRequest = "request" // the request endpoint
	doorStream  = "stream"  // the stream endpoint: a JetStream publish
	doorHTTP    = "http"    // PUT
	doorEmpty   = "empty"   // no submission: an empty request, answered with nothing by the engine's process
	doorTake    = "take"    // no submission: a message of a stream, which the engine's process takes off and drops
)

// httpConnections are the requests that may be under way over HTTP, where nothing else is said.
const httpConnections = 2000

// door hands submissions in. It calls generator.outcome for each that is answered.
type door interface {
	send(i int, header nats.Header, body []byte) // body is shared
	close()
}

func connectGenerator(url string) (*nats.Conn, error) {
	nc, err := nats.Connect(url, nats.Name("bench-generator"), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	if err != nil {
		return nil, fmt.Errorf("connect the generator: %w", err)
	}
	return nc, nil
}

func (g *generator) openDoor() (door, error) {
	s := &g.settings
	if s.Door == doorHTTP {
		return newHTTPDoor(g), nil
	}
	d := &natsDoor{g: g, prefix: nats.NewInbox() + ".", subject: map[string]func(string, string) string{
		"": wire.Names{}.SubmitSubject, doorRequest: wire.Names{}.SubmitSubject, doorStream: wire.Names{}.InSubject,
		doorEmpty: func(string, string) string { return emptySubject }, doorTake: func(string, string) string { return takeSubject },
	}[s.Door]}
	d.conns = make([]*nats.Conn, max(1, s.Connections))
	if err := d.connect(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// connecting is how many connections are made at a time.
const connecting = 64

// connect makes the connections.
func (d *natsDoor) connect() error {
	var wg sync.WaitGroup
	errs := make([]error, connecting)
	for from := range connecting {
		wg.Go(func() {
			for k := from; k < len(d.conns) && errs[from] == nil; k += connecting {
				errs[from] = d.open(k)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// open makes one that listens to its answers.
func (d *natsDoor) open(k int) (err error) {
	if d.conns[k], err = connectGenerator(d.g.settings.NATSURL); err != nil {
		return err
	}
	sub, err := d.conns[k].Subscribe(d.prefix+strconv.Itoa(k)+".*", d.answer)
	if err == nil {
		err = errors.Join(sub.SetPendingLimits(-1, -1), d.conns[k].Flush())
	}
	if err != nil {
		return fmt.Errorf("listen to answers: %w", err)
	}
	return nil
}

// natsDoor hands in over NATS, over its connections in turn.
type natsDoor struct {
	g       *generator
	subject func(taskType, id string) string
	prefix  string // of the inboxes
	conns   []*nats.Conn
}

func (d *natsDoor) send(i int, header nats.Header, body []byte) {
	k := i % len(d.conns)
	m := nats.Msg{Subject: d.subject(drone.Type, string(d.g.id(i))), Reply: d.prefix + strconv.Itoa(k) + "." + strconv.Itoa(i), Header: header, Data: body}
	_ = d.conns[k].PublishMsg(&m) // an error is one of the connection; the submission then has no answer
}

// answer notes the answer to one submission.
func (d *natsDoor) answer(m *nats.Msg) {
	if len(m.Subject) < len(d.prefix) {
		return
	}
	_, number, _ := bytes.Cut([]byte(m.Subject[len(d.prefix):]), []byte("."))
	i, err := strconv.Atoi(string(number))
	if err != nil || i >= len(d.g.state) {
		return
	}
	stored := bytes.HasPrefix(m.Data, []byte(`{"stream":`))
	empty := len(m.Data) == 0 && len(m.Header) == 0
	if !stored && !empty {
		d.g.reasons.count(numberOf(m.Data, "err_code"), m.Data)
	}
	d.g.outcome(i, stored || empty, time.Duration(numberOf(m.Data, "retry_ms"))*time.Millisecond)
}

// numberOf is a number of an answer: a refusal's code, or when to come again; 0: it has none of that name.
func numberOf(answer []byte, name string) int {
	_, after, _ := bytes.Cut(answer, []byte(`"`+name+`":`))
	n := bytes.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	number, err := strconv.Atoi(string(after[:max(0, n)]))
	if err != nil {
		return 0
	}
	return number
}

func (d *natsDoor) close() {
	for _, nc := range d.conns {
		if nc != nil {
			nc.Close()
		}
	}
}

// httpDoor hands in over HTTP, each of its workers one submission at a time.
type httpDoor struct {
	g      *generator
	client *http.Client
	work   chan httpWork
	wg     sync.WaitGroup
}

type httpWork struct {
	i      int
	header nats.Header
	body   []byte
}

func newHTTPDoor(g *generator) *httpDoor {
	workers := orElse(g.settings.Connections, httpConnections)
	d := &httpDoor{g: g, work: make(chan httpWork, g.plan.total)}
	d.client = &http.Client{Timeout: answerMax, Transport: &http.Transport{MaxIdleConns: workers, MaxIdleConnsPerHost: workers}}
	for range workers {
		d.wg.Go(func() {
			for w := range d.work {
				d.put(w)
			}
		})
	}
	return d
}

func (d *httpDoor) send(i int, header nats.Header, body []byte) {
	d.work <- httpWork{i, header, bytes.Clone(body)}
}

// put hands one in. Where all workers were busy it was late, which the point then tells.
func (d *httpDoor) put(w httpWork) {
	g := d.g
	at := int64(time.Since(g.began))
	g.late[w.i] += at - g.sentAt[w.i]
	g.sentAt[w.i] = at
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, g.settings.HTTPURL+"/v1/tasks/"+drone.Type+"/"+string(g.id(w.i)), bytes.NewReader(w.body))
	if err != nil {
		return
	}
	for name, values := range w.header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+g.settings.Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		return // no answer
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return
	}
	if res.StatusCode/100 != 2 {
		g.reasons.count(res.StatusCode, answer)
	}
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // none: 0
	g.outcome(w.i, res.StatusCode/100 == 2, time.Duration(seconds)*time.Second)
}

func (d *httpDoor) close() {
	close(d.work)
	d.wg.Wait()
	d.client.CloseIdleConnections()
}
