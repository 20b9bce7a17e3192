package members

import (
	"slices"
	"testing"
	"time"
)

// A node whose end was not reported is dropped in the end, but not for want of a server or of a watch.
//
// covers: inv11
func TestPrune(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(time.Minute, func() time.Time { return now })
	hear := func(nodes ...string) {
		for _, node := range nodes {
			m.Hear(node, true)
		}
	}
	wantNews := func(when string, want ...string) {
		t.Helper()
		if nodes, changed := m.Take(); changed != (want != nil) || !slices.Equal(nodes, want) {
			t.Errorf("%s: %v, %v, want %v", when, nodes, changed, want)
		}
	}
	hear("fresh", "stale")
	wantNews("before all have been told")
	m.All()
	wantNews("after it", "fresh", "stale")
	now = now.Add(3 * time.Minute)
	hear("fresh")
	if m.Mute(false) {
		t.Error("a watch begun without a server")
	}
	m.Prune()
	wantNews("while there is no server")
	if m.Mute(true) || !m.Mute(true) {
		t.Error("the server is back: want its watch trusted for one more look, so that all renew, and then no longer")
	}
	m.Restart()
	now = now.Add(3 * time.Minute)
	m.Prune()
	hear("stale", "fresh")
	m.All()
	wantNews("the same nodes")
	if m.Mute(true) {
		t.Error("a watch that was just heard is mute")
	}
	for range 3 {
		now = now.Add(time.Minute)
		hear("fresh")
		m.Prune()
	}
	wantNews("a node that is not renewed", "fresh")
	if now = now.Add(2 * time.Minute); !m.Mute(true) {
		t.Error("a watch that says nothing for so long is trusted")
	}
	m.Restart()
	m.All()
	if nodes, changed := m.Take(); !changed || len(nodes) != 0 {
		t.Errorf("%v, %v: none is there", nodes, changed)
	}
	hear("back")
	wantNews("one comes", "back")
	m.Hear("back", false)
	if nodes, changed := m.Take(); !changed || len(nodes) != 0 {
		t.Errorf("%v, %v: its lease has ended", nodes, changed)
	}
}
