package scheduler

import "duly.dev/duly/internal/core"

// positions are how far a partition is with its two streams, and what it has taken from them and not acknowledged.
type positions struct {
	// Positions fully dealt with: every task of the message committed and every
	// status it led to published. The next commit carries them.
	cursor, control uint64
	// Positions applied by the cycle that is on; they become the cursors when the
	// cycle has published.
	nextCursor, nextControl uint64
	// When the streams took the messages at all of these.
	cursorStored, controlStored, nextStored, nextControlStored core.Instant

	reading core.Reading // what the doors are told: Read and Begun are of what is applied
	acks    []func()     // of the cycle that is on
}

// positionsOf are those of a partition's row.
func positionsOf(st *core.PartitionState) positions {
	return positions{
		cursor: st.Cursor, control: st.ControlCursor, nextCursor: st.Cursor, nextControl: st.ControlCursor,
		cursorStored: st.CursorStored, controlStored: st.ControlStored, nextStored: st.CursorStored, nextControlStored: st.ControlStored,
	}
}

// ackLater acknowledges a message at the end of the cycle.
func (r *positions) ackLater(ack func()) { r.acks = append(r.acks, ack) }

// advance moves the cursors to what is applied, and acknowledges the messages. Of the control stream everything up to control
// is dealt with.
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
