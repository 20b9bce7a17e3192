package sim

import (
	"bytes"

	"duly.dev/duly/internal/core"
)

// message is one message of a stream.
type message struct {
	partition int
	subs      []core.Submission
	control   core.Control
	ids       []string     // of the tasks that the control names by number
	at        core.Instant // when the stream took it
	gone      bool         // removed, when all had read it
	garbage   bool         // cannot be decoded: its reader makes it a dead letter and goes on
}

// append puts a message on a stream and lets its readers know.
func (w *World) append(stream *[]message, m message) uint64 {
	if w.fault(Undecodable) {
		w.append1(stream, message{partition: m.partition, garbage: true})
	}
	return w.append1(stream, m)
}

func (w *World) append1(stream *[]message, m message) uint64 {
	m.at = w.now
	*stream = append(*stream, m)
	for i := range m.subs {
		w.stored[subKey(&m.subs[i])] = true
		w.tell(m.subs[i].ID, -1, "stored in the stream at %d", len(*stream))
		delete(w.lost, m.subs[i].ID)
	}
	for _, n := range w.nodes {
		if n.feeds[m.partition] != nil {
			w.after(w.delay(), func() { n.pump(m.partition) })
		}
	}
	return uint64(len(*stream))
}

// loseStream is a task stream and a control stream that are lost as a whole, by
// an operator or a disk, while SQL is intact, and all nodes are started again with the
// new ones. What is promised: what
// SQL has goes on; positions begin again; and what was accepted and not read is
// gone, that and nothing else.
func (w *World) loseStream() {
	if !w.fault(StreamLost) {
		return
	}
	w.tell("", -1, "the streams are lost")
	w.makeStreams(true, true)
	for _, n := range w.nodes {
		n.restart()
	}
}

// countLost finds what neither SQL nor the stream has any more.
func (w *World) countLost() {
	unread := map[string]bool{}
	for i, m := range w.stream {
		if !m.gone && uint64(i+1) > w.cursor(m.partition) {
			for j := range m.subs {
				unread[m.subs[j].ID] = true
			}
		}
	}
	for _, c := range w.clients {
		id := c.sub.ID
		if w.stored[subKey(&c.sub)] && !unread[id] && !w.isDurable(w.partitionOf(id), &c.sub) {
			w.lost[id] = true
		}
	}
}

// cursor is the committed position of a partition in the present task stream.
func (w *World) cursor(partition int) uint64 {
	st := w.Store.Partition(partition)
	if !w.readsTasks(st.Stream) || wentBack(w.stream, place{st.Cursor, st.CursorStored}) {
		return 0
	}
	return st.Cursor
}

// isDurable reports whether a submission has come to something durable: its row;
// a refusal, where its id is another's row; a dead letter.
func (w *World) isDurable(partition int, s *core.Submission) bool {
	if w.dead[s.ID] {
		return true
	}
	r := w.Store.ids[idKey{partition, s.ID}]
	return r != nil && (w.refused[s.ID] || bytes.Equal(r.task.InputHash, core.HashInput(s.Type, s.Input)))
}
