package group

import (
	"slices"
	"testing"
	"time"
)

// TestCrowd: a member is dead when it is silent for a lease while the own one is heard; what is not heard for the own
// process's sake, or NATS's, says nothing about others.
func TestCrowd(t *testing.T) {
	const lease = time.Second
	now := time.Now()
	c := newCrowd("me", lease)
	expect := func(what string, want ...string) {
		t.Helper()
		if got := c.live(now); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	later := func(d time.Duration, heard ...string) {
		now = now.Add(d)
		for _, name := range heard {
			c.note(name, nil, false, now)
		}
	}
	c.restart()
	later(0, "me", "other")
	expect("before all that are there are known")
	c.complete()
	expect("all", "me", "other")
	later(lease*3/4, "me")
	expect("the other is late", "me", "other")
	later(lease/2, "me")
	expect("the other is dead", "me")
	later(0, "other")
	expect("it lives", "me", "other")
	later(5 * lease)
	expect("nothing is heard")
	later(0, "me")
	expect("the other has a lease's time", "me", "other")
	later(lease*3/4, "me")
	later(lease/2, "me")
	expect("that is over", "me")
	if !c.note("other", []byte("1"), false, now) || c.note("other", []byte("1"), false, now) || !c.note("other", nil, true, now) {
		t.Error("news are a member that says something else, and one that leaves")
	}
	expect("it has left", "me")
	if c.mute(now, now.Add(lease)) || !c.mute(now, now.Add(3*lease)) {
		t.Error("a watch is mute after two leases")
	}
}

// TestNarrowed: the subjects of a partition are those of the filter in which its number is.
func TestNarrowed(t *testing.T) {
	for _, test := range []struct {
		pattern string
		token   int
		want    []string
	}{
		{"a.*.b", 2, []string{"a.7.b"}},
		{"a.>", 2, []string{"a.7", "a.7.>"}},
		{"a.>", 4, []string{"a.*.*.7", "a.*.*.7.>"}},
		{">", 1, []string{"7", "7.>"}},
		{"a.*.>", 2, []string{"a.7.>"}},
		{"a.7.b", 2, []string{"a.7.b"}},
		{"a.8.b", 2, nil},
		{"a.b", 3, nil},
	} {
		if got := narrowed(test.pattern, test.token, "7"); !slices.Equal(got, test.want) {
			t.Errorf("%s, token %d: %q, want %q", test.pattern, test.token, got, test.want)
		}
	}
	by := Token(8, 2)
	for subject, want := range map[string]int{"a.7": 7, "a.0.x": 0, "a.8": -1, "a.07": -1, "a.+7": -1, "a": -1, "a.x": -1} {
		if p, ok := by.partition(subject); ok != (want >= 0) || ok && p != want {
			t.Errorf("%s: %d %t, want %d", subject, p, ok, want)
		}
	}
}

// TestQueueIsBounded: no more is kept than there is room for, in number and in bytes; what had none is asked for again, and
// nothing is taken twice.
func TestQueueIsBounded(t *testing.T) {
	const count, bytes = 4, 100
	q := newQueue(position{seq: 10}, count, bytes)
	put := func(seq uint64, size int, shared bool) taken {
		return q.offer(item{kind: isMsg, to: position{seq: seq}, size: size}, shared)
	}
	for i, test := range []struct {
		got, want taken
	}{
		{put(10, 1, true), taking}, // it has that
		{put(12, 60, true), taking},
		{put(13, 60, true), full}, // too many bytes
		{put(13, 10, true), taking},
		{put(14, 10, true), taking},
		{put(15, 10, true), taking},
		{put(16, 1, true), full}, // too many
		{q.offer(item{kind: isMark, to: position{seq: 20}}, true), taking}, // the next one will do
	} {
		if test.got != test.want {
			t.Errorf("offer %d: %v, want %v", i, test.got, test.want)
		}
	}
	if q.position().seq != 15 || len(q.head(3, bytes)) != 3 || len(q.head(9, 75)) != 2 {
		t.Errorf("up to %d, %d and %d to handle, want 15, 3 and 2", q.position().seq, len(q.head(3, bytes)), len(q.head(9, 75)))
	}
	q.trouble()
	if put(16, 1, false) != full || put(16, 1, true) != left || put(17, 1, true) != left {
		t.Error("a feed that has others waits for a partition in trouble")
	}
	if _, ok := q.from(); ok {
		t.Error("there is room in the middle of trouble")
	}
	if q.done(1) || !q.done(2) {
		t.Error("it is read again once half is done, not before")
	}
	if at, ok := q.from(); !ok || at.seq != 15 {
		t.Errorf("read again from %d, %t, want 15", at.seq, ok)
	}
	if put(16, 1, true) != taking || q.done(2) {
		t.Error("what was left out is not taken")
	}
}
