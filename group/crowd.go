package group

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// crowd is which members live, by what is heard of them. It judges only while it hears its own member: without NATS, or in a
// process that was frozen, none of the others is heard, and none is dead for it.
type crowd struct {
	self  string
	lease time.Duration

	mu    sync.Mutex
	seen  map[string]beat
	heard time.Time // when the own member was last heard; zero: not by this watch
	all   bool      // the watch has reported all that were there
}

type beat struct {
	at    time.Time
	value []byte
}

func newCrowd(self string, lease time.Duration) *crowd {
	return &crowd{self: self, lease: lease, seen: map[string]beat{}}
}

// restart notes that a watch has begun.
func (c *crowd) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard, c.all = time.Time{}, false
}

// complete notes that a watch has reported all that were there.
func (c *crowd) complete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = true
}

// note takes what a watch reports of a member; gone: it has left. news says that there is something to place.
func (c *crowd) note(name string, value []byte, gone bool, now time.Time) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.seen[name]
	if gone {
		delete(c.seen, name)
		return known
	}
	c.seen[name] = beat{now, value}
	if name != c.self {
		return !known || !bytes.Equal(was.value, value)
	}
	deaf := now.Sub(c.heard) > c.lease
	c.heard = now
	if deaf { // the others have a lease's time to be heard
		for other := range c.seen {
			c.seen[other] = beat{now, c.seen[other].value}
		}
	}
	return deaf
}

// live are the members that were heard within a lease, in order; nil: this member cannot say.
func (c *crowd) live(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.all || now.Sub(c.heard) > c.lease {
		return nil
	}
	var names []string
	for name, b := range c.seen {
		switch silent := now.Sub(b.at); {
		case silent <= c.lease:
			names = append(names, name)
		case silent > 10*c.lease: // it does not come back
			delete(c.seen, name)
		}
	}
	slices.Sort(names)
	return names
}

// mute reports whether the watch has said nothing for so long that another one must begin.
func (c *crowd) mute(since, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard.After(since) {
		since = c.heard
	}
	return now.Sub(since) > 2*c.lease
}
