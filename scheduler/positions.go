package scheduler

import "duly.dev/duly/internal/core"

// positions is how far a partition has come in its two streams, and which messages it has still to acknowledge.
type positions struct {
	// cursor and control are the positions that are fully dealt with: every task of the message is committed and every
	// status of it published. They ride on the next commit.
	cursor, control uint64
	// nextCursor and nextControl are the positions applied in the current cycle. They become the cursors when the cycle
	// has published.
	nextCursor, nextControl uint64
	// These are when the streams stored the messages at those positions.
	cursorStored, controlStored, nextStored, nextControlStored core.Instant

	// reading is what ingest is told, to estimate how long a submission will wait. It counts what is applied.
	reading core.Reading
	acks    []func() // of the current cycle
}

// positionsOf returns the positions stored in a partition's row.
func positionsOf(st *core.PartitionState) positions {
	return positions{
		cursor: st.Cursor, control: st.ControlCursor, nextCursor: st.Cursor, nextControl: st.ControlCursor,
		cursorStored: st.CursorStored, controlStored: st.ControlStored, nextStored: st.CursorStored, nextControlStored: st.ControlStored,
	}
}

// ackLater has a message acknowledged at the end of the cycle.
func (r *positions) ackLater(ack func()) { r.acks = append(r.acks, ack) }

// advance moves the task cursor to what is applied, the control cursor to the given position, and
// acknowledges the cycle's messages. The caller has committed and published everything they led to.
func (r *positions) advance(control uint64, stored core.Instant) {
	r.cursor, r.cursorStored = r.nextCursor, r.nextStored
	r.control, r.controlStored = control, stored
	for _, ack := range r.acks {
		if ack != nil {
			ack()
		}
	}
	clear(r.acks)
	r.acks = r.acks[:0]
}
