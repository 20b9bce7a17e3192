package conformance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

const (
	answersKept  = 4   // of one call; more are counted
	evidenceMost = 400 // bytes shown of a message
)

// answer is one message that came to a call's reply subject.
type answer struct {
	at       time.Time
	reply    core.Reply
	bytes    int
	failed   bool // it says that it is an error; one that is not can be no result all the same: see reply.Code
	unserved bool // the server's word that no instance listens
	data     []byte
}

// call is one message to the agent, with what came of it.
type call struct {
	what    string
	subject string
	payload string    // shortened
	began   time.Time // when it was sent
	end     time.Time // its complete-by, by this process's clock
	untimed bool      // it has none that the agent can know: end is only how long to wait
	brief   bool      // its results are not kept
	err     error     // it could not be sent
	first   chan struct{}

	// Of desk.mu.
	answers []answer // the first answersKept
	came    int
	heard   bool // by a member of the queue group that is the run's own
}

// desk sends calls and takes their answers, by one subscription.
type desk struct {
	nc        *nats.Conn
	resultMax int
	inbox     string // of the reply subjects, ends with a dot
	sub       *nats.Subscription
	echoing   sync.WaitGroup
	closed    chan struct{}

	mu     sync.Mutex
	calls  []*call // by their number
	echoes []echo
}

// echo is a message of the run to itself: what it takes on its way, an answer may take too. Else a slow machine or network
// would pass for an agent that answers too late.
type echo struct{ sent, came time.Time }

const (
	echoEvery  = 50 * time.Millisecond
	echoesMost = 1 << 16 // an hour of them
)

// pendingMessages and pendingBytes bound the answers that wait to be looked at.
const (
	pendingMessages = 1 << 20
	pendingBytes    = 256 << 20
)

func newDesk(nc *nats.Conn, resultMax int) (*desk, error) {
	d := &desk{nc: nc, resultMax: resultMax, inbox: nc.NewInbox() + ".", closed: make(chan struct{})}
	var err error
	if d.sub, err = nc.Subscribe(d.inbox+"*", d.take); err != nil {
		return nil, fmt.Errorf("subscribe to %s*: %w", d.inbox, err)
	}
	if err := d.sub.SetPendingLimits(pendingMessages, pendingBytes); err != nil {
		return nil, fmt.Errorf("subscription of the answers: %w", err)
	}
	d.echoing.Go(d.echo)
	return d, nil
}

// close takes no more answers.
func (d *desk) close() {
	close(d.closed)
	d.echoing.Wait()
	_ = d.sub.Unsubscribe() // an error says that it has ended
}

// echo sends echoes until the desk is closed.
func (d *desk) echo() {
	every := time.NewTicker(echoEvery)
	defer every.Stop()
	for {
		d.mu.Lock()
		n := len(d.echoes)
		if n < echoesMost {
			d.echoes = append(d.echoes, echo{sent: time.Now()})
		}
		d.mu.Unlock()
		if n == echoesMost || d.nc.Publish(d.inbox+echoMark+strconv.Itoa(n), nil) != nil {
			return // the calls' errors tell of the connection
		}
		select {
		case <-every.C:
		case <-d.closed:
			return
		}
	}
}

// onTheWay is the longest that a message of the run to itself was on its way between two times; 0 also where none ever
// came: the user may not send them.
func (d *desk) onTheWay(from, to time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var longest time.Duration
	if !slices.ContainsFunc(d.echoes, func(e echo) bool { return !e.came.IsZero() }) {
		return 0
	}
	for _, e := range d.echoes {
		if e.came.IsZero() {
			e.came = to
		}
		if !e.sent.After(to) && !e.came.Before(from) {
			longest = max(longest, e.came.Sub(e.sent))
		}
	}
	return longest
}

// send sends a message that is answered within left.
func (d *desk) send(what, subject string, header nats.Header, data []byte, left time.Duration) *call {
	return d.publish(&call{what: what, subject: subject}, header, data, left)
}

// sendMany sends n messages at a time, each with what of gives. Where they are brief no results are kept.
func (d *desk) sendMany(what, subject string, n int, of func() []byte, left time.Duration, brief bool) []*call {
	all := make([]*call, n)
	for i := range all {
		all[i] = d.publish(&call{what: what, subject: subject, brief: brief}, nil, of(), left)
	}
	return all
}

// publish gives a call its reply subject and sends it.
func (d *desk) publish(c *call, header nats.Header, data []byte, left time.Duration) *call {
	c.payload, c.began, c.first = shortened(data), time.Now(), make(chan struct{})
	c.end = c.began.Add(left)
	d.mu.Lock()
	reply := d.inbox + strconv.Itoa(len(d.calls))
	d.calls = append(d.calls, c)
	d.mu.Unlock()
	c.err = d.nc.PublishMsg(&nats.Msg{Subject: c.subject, Reply: reply, Header: header, Data: data})
	return c
}

// echoMark begins the last token of an echo's subject.
const echoMark = "e"

// take keeps one answer, or when an echo came.
func (d *desk) take(m *nats.Msg) {
	at := time.Now()
	token := strings.TrimPrefix(m.Subject, d.inbox)
	number, isEcho := strings.CutPrefix(token, echoMark)
	n, err := strconv.Atoi(number)
	d.mu.Lock()
	defer d.mu.Unlock()
	if isEcho {
		if err == nil && n >= 0 && n < len(d.echoes) {
			d.echoes[n].came = at
		}
		return
	}
	if err != nil || n < 0 || n >= len(d.calls) {
		return // a subject that nothing was to be answered at
	}
	c := d.calls[n]
	if c.came++; len(c.answers) < answersKept {
		c.answers = append(c.answers, d.read(at, m, c.brief))
	}
	if c.came == 1 {
		close(c.first)
	}
}

// read reads an answer as a scheduler does.
func (d *desk) read(at time.Time, m *nats.Msg, brief bool) answer {
	a := answer{at: at, bytes: len(m.Data)}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		a.unserved = true
		return a
	}
	var names wire.Names // any command's reply subject will do
	reply, err := names.DecodeReply(names.ReplySubject(0, 1, 1), wire.Header(m.Header), m.Data, d.resultMax)
	if err != nil { // the subject is one
		reply.Code, reply.Error = core.CodeAgentError, err.Error()
	}
	a.reply = reply
	_, _, a.failed = wire.Header(m.Header).Failure()
	a.data = m.Data
	if brief || len(a.data) > d.resultMax {
		a.data, a.reply.Result = bytes.Clone(a.data[:min(len(a.data), evidenceMost+1)]), nil
	}
	return a
}

// hear notes that a command came to the run's own member of the queue group; false: it is not one of the run's.
func (d *desk) hear(reply string) bool {
	number, ok := strings.CutPrefix(reply, d.inbox)
	n, err := strconv.Atoi(number)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !ok || err != nil || n < 0 || n >= len(d.calls) {
		return false
	}
	d.calls[n].heard = true
	return true
}

// wait waits for the first answer until there can be none, or ctx ends.
func (d *desk) wait(ctx context.Context, c *call, slack time.Duration) {
	if c.err != nil {
		return
	}
	timer := time.NewTimer(time.Until(c.end.Add(slack)))
	defer timer.Stop()
	select {
	case <-c.first:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answer is the first answer; ok is false where none has come.
func (d *desk) answer(c *call) (a answer, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(c.answers) == 0 {
		return answer{}, false
	}
	return c.answers[0], true
}

// look is what is known of a call now.
func (d *desk) look(c *call) (answers []answer, came int, heard bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return c.answers[:len(c.answers):len(c.answers)], c.came, c.heard
}

// sent is how many calls there were.
func (d *desk) sent() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

// since are the calls from a number on.
func (d *desk) since(n int) []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[n:len(d.calls):len(d.calls)]
}

// ok reports whether the answer is a success with a result that counts.
func (a *answer) ok() bool { return !a.unserved && a.reply.Code == 0 }

// final reports whether the answer is an error after which nothing is tried again.
func (a *answer) final() bool { return !a.unserved && core.FinalCode(a.reply.Code) }

// words are an answer for people.
func (a *answer) words() string {
	switch {
	case a.unserved:
		return "no instance listens"
	case a.failed:
		return fmt.Sprintf("error %d, %s", a.reply.Code, core.QuoteShort(a.reply.Error))
	case a.reply.Code != 0:
		return "no result: " + a.reply.Error
	case a.bytes == 0:
		return "success, empty"
	}
	return "success, " + excerpt(a.data, a.bytes)
}

// shortened is a payload for evidence.
func shortened(data []byte) string { return excerpt(data, len(data)) }

// excerpt is the beginning of a payload of so many bytes.
func excerpt(data []byte, size int) string {
	if size == 0 {
		return "(empty)"
	}
	text := strings.ToValidUTF8(string(data[:min(len(data), evidenceMost)]), "\uFFFD")
	if size > evidenceMost {
		return fmt.Sprintf("%s… (%d bytes)", text, size)
	}
	return text
}
