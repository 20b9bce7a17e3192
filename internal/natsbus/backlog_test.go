package natsbus

import "testing"

// TestBacklog: what a reader's handler has no room for stays with the server,
// and counts.
//
// covers: I4
func TestBacklog(t *testing.T) {
	c := ready(t)
	s := newSink()
	s.gate = make(chan struct{})
	s.read(t, c, 1, 0, ReadConfig{Prefetch: 1})
	t.Cleanup(func() { close(s.gate) }) // before the reader is stopped, which waits for its handler
	publishTasks(t, c, 20)
	eventually(t, "a backlog on the one partition that is read", func() bool {
		backlog, err := c.Backlog(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return len(backlog) == 1 && backlog[part] >= 10
	})
}
