package schema

import (
	"encoding/binary"

	"duly.dev/duly/internal/core"
)

// tuples are rows in the binary form of COPY: of each row how many columns it has,
// and each value with its length before it.
type tuples struct {
	scratch
	rows int
}

func (t *tuples) begin(columns int) {
	t.rows++
	t.buf = binary.BigEndian.AppendUint16(t.buf, uint16(columns))
}

func (t *tuples) null() { t.buf = append(t.buf, 0xff, 0xff, 0xff, 0xff) }

func (t *tuples) int(v int64) {
	t.buf = binary.BigEndian.AppendUint64(append(t.buf, 0, 0, 0, 8), uint64(v))
}

func (t *tuples) int2(v int16) {
	t.buf = binary.BigEndian.AppendUint16(append(t.buf, 0, 0, 0, 2), uint16(v))
}

func (t *tuples) text(s string) {
	t.buf = append(binary.BigEndian.AppendUint32(t.buf, uint32(len(s))), s...)
}

func (t *tuples) bool(v bool) {
	word := byte(0)
	if v {
		word = 1
	}
	t.buf = append(t.buf, 0, 0, 0, 1, word)
}

// unless adds v, or NULL for the value that means none.
func (t *tuples) unless(none, v int64) {
	if v == none {
		t.null()
		return
	}
	t.int(v)
}

func (t *tuples) someText(s string) {
	if s == "" {
		t.null()
		return
	}
	t.text(s)
}

func (t *tuples) someBytes(b []byte) {
	if len(b) == 0 {
		t.null()
		return
	}
	t.buf = append(binary.BigEndian.AppendUint32(t.buf, uint32(len(b))), b...)
}

// zeroTime is where PostgreSQL's timestamps begin, 2000-01-01, in microseconds.
const zeroTime = 946_684_800_000_000

func (t *tuples) time(i core.Instant) {
	if i == 0 {
		t.null()
		return
	}
	t.int(int64(i) - zeroTime)
}

func (t *tuples) reset() {
	t.rows = 0
	t.empty()
}
