package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/wire"
)

// hooking is held while a connection's error handler is replaced. This package and the library of services both do that: each
// keeps the handler that was there and calls it too.
var hooking sync.Mutex

// deniedSubject finds the subject in the server's error about a missing right.
var deniedSubject = regexp.MustCompile(`(Publish|Subscription) to "([^"\s]+)"(?: using queue "([^"\s]+)")?`)

// listenForDenials notes from now on what the server denies to the connection's user. The library reports a
// denied subscription only to the connection's error handler, some time after the subscription seemed to
// succeed.
func (c *Conn) listenForDenials() {
	hooking.Lock()
	defer hooking.Unlock()
	before := c.nc.ErrorHandler()
	c.nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		c.denied(err)
		c.cannotAnswer(err)
		if before != nil {
			before(nc, sub, err)
		}
	})
}

// cannotAnswer logs, at powers of two, that an agent's answers are denied. The agent goes on working, and its
// commands come again and again.
func (c *Conn) cannotAnswer(err error) {
	d, is := denialOf(err)
	if !is || d.Subscribe || !c.names.IsReply(d.Subject) {
		return
	}
	if n := c.unanswered.Add(1); n&(n-1) == 0 {
		c.log.Error("NATS does not let this agent answer: its user needs allow_responses, for as long as a command may take, and batches of replies", "subject", wire.Short(d.Subject), "so_far", n, "error", err)
	}
}

// Denial is something that the server did not let the connection's user do.
type Denial struct {
	// Subscribe is whether a subscription was denied; otherwise a publish was.
	Subscribe bool
	Subject   string
	// Queue is the subscription's queue group.
	Queue string
	Since time.Time
	Err   error
	// Answer is whether the publish was an answer to a request. A user with the right to answer is denied a
	// second answer to one subject, and a late one: that is the asker's doing.
	Answer bool

	// seen is when it was last denied.
	seen time.Time
}

// How long a denied publish is remembered after it was last tried, and how many denials are kept. A denied subscription is
// remembered until the connection is made again.
const (
	denialKept = 30 * time.Second
	denialsMax = 128
)

// denialOf parses the server's error about a missing right. false: it is another error.
func denialOf(err error) (Denial, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return Denial{}, false
	}
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil {
		return Denial{}, false
	}
	now := time.Now()
	return Denial{Subscribe: found[1] == "Subscription", Subject: found[2], Queue: found[3], Since: now, Err: err, seen: now}, true
}

// denied notes a denial, and tells the service whose subject it is about. It reports whether the error was
// one.
func (c *Conn) denied(err error) bool {
	d, is := denialOf(err)
	if !is {
		return false
	}
	now := d.seen
	d.Answer = !d.Subscribe && c.names.CheckAnswer(d.Subject, c.replyTo) == nil && !c.notified.has(d.Subject)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denials = slices.DeleteFunc(c.denials, func(old Denial) bool { return old.over(now) })
	i := slices.IndexFunc(c.denials, func(old Denial) bool {
		return old.Subscribe == d.Subscribe && old.Subject == d.Subject && old.Queue == d.Queue
	})
	switch {
	case i >= 0:
		c.denials[i].seen = now
	case len(c.denials) < denialsMax:
		c.denials = append(c.denials, d)
	}
	if s := c.served[d.Subject]; s != nil && d.Subscribe {
		select {
		case s.denials <- fmt.Errorf("agent %s may not subscribe to %s: %w", s.agent, d.Subject, err):
		default: // one is enough
		}
	}
	return true
}

// over reports whether the denial is too old to count.
func (d *Denial) over(now time.Time) bool { return !d.Subscribe && now.Sub(d.seen) > denialKept }

// recentSubjects remembers subjects that statuses were sent to, so that a denied one is not taken for a
// denied answer. It is a hash table of fixed size without chains: a newer subject replaces one in the same
// place.
type recentSubjects [256]atomic.Pointer[string]

// place is the one place where a subject may be.
func (l *recentSubjects) place(subject string) *atomic.Pointer[string] {
	return &l[maphash.String(recentSeed, subject)%uint64(len(l))]
}

// note remembers a subject, and forgets the one that was in its place.
func (l *recentSubjects) note(subject string) { l.place(subject).Store(&subject) }

// has reports whether a subject is remembered. false does not say that nothing was sent there.
func (l *recentSubjects) has(subject string) bool {
	is := l.place(subject).Load()
	return is != nil && *is == subject
}

// recentSeed differs in each process, so that nobody can choose subjects that share a place.
var recentSeed = maphash.MakeSeed()

// Denials returns what the server does not let the connection's user do, as far as it was tried a short time
// ago.
func (c *Conn) Denials() []Denial {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.denials), func(d Denial) bool { return d.over(now) })
}

// Permissions are what the connection's user may do. A pattern of subscriptions may end with a space and a
// queue group.
type Permissions struct {
	User               string
	Publish, Subscribe PermissionLists
	// Answers is whether the user may answer requests that it receives, even where Publish does not allow the
	// subject.
	Answers bool
}

// PermissionLists are the patterns of one kind; an empty Allow allows everything that Deny does not.
type PermissionLists struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// errUnasked is the error of Permissions where the user may not ask for them.
var errUnasked = errors.New("the user may not ask for its permissions")

// Permissions asks the server what the connection's user may do.
func (c *Conn) Permissions(ctx context.Context) (Permissions, error) {
	if c.unasked.Load() {
		return Permissions{}, errUnasked
	}
	msg, err := c.Request(ctx, SubjectUserInfo, nil)
	if errors.Is(err, nats.ErrPermissionViolation) {
		c.unasked.Store(true)
		return Permissions{}, errUnasked
	}
	if err != nil {
		return Permissions{}, fmt.Errorf("permissions of the user: %w", err)
	}
	var info struct {
		Data struct {
			User        string `json:"user"`
			Permissions struct {
				Publish   PermissionLists `json:"publish"`
				Subscribe PermissionLists `json:"subscribe"`
				Responses *struct{}       `json:"responses"`
			} `json:"permissions"`
		} `json:"data"`
		Error *wire.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		return Permissions{}, fmt.Errorf("permissions of the user: %w", err)
	}
	if info.Error != nil {
		return Permissions{}, fmt.Errorf("permissions of the user: %w", info.Error)
	}
	return Permissions{User: info.Data.User, Publish: info.Data.Permissions.Publish, Subscribe: info.Data.Permissions.Subscribe, Answers: info.Data.Permissions.Responses != nil}, nil
}

// SubjectUserInfo is where a user asks the server for its own permissions.
const SubjectUserInfo = "$SYS.REQ.USER.INFO"

// Resubscribe reconnects, so that denied subscriptions are made again: the server does not make them by
// itself when the right is granted.
func (c *Conn) Resubscribe() error {
	if err := c.nc.ForceReconnect(); err != nil {
		return fmt.Errorf("connect again: %w", err)
	}
	return nil
}

// Inbox returns the prefix of the subjects on which this connection receives answers.
func (c *Conn) Inbox() string { return inboxPrefix(c.nc) }
