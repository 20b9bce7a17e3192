package schema

import (
	"encoding/binary"
	"slices"

	"duly.dev/duly/internal/core"
)

// field is one column that a statement unnests from an array parameter.
type field struct {
	name, typ string
	// zero is what the table holds where the array has NULL: an array ends with
	// its last value that is not NULL, so a value that most rows have costs nothing.
	zero string
}

// oids of the element types.
var oids = map[string]uint32{"BOOL": 16, "BYTEA": 17, "INT8": 20, "TEXT": 25, "TIMESTAMPTZ": 1184}

// group is the columns of one unnest. A row is added by begin, and then one value
// per column in the order of the columns.
type group struct {
	arrays []array
	rows   int
	at     int
}

func newGroup(cols []field) group {
	g := group{arrays: make([]array, len(cols))}
	for i := range cols {
		g.arrays[i].oid = oids[cols[i].typ]
		g.arrays[i].reset()
	}
	return g
}

func (g *group) begin() { g.rows, g.at = g.rows+1, 0 }

func (g *group) next() *array {
	g.at++
	return &g.arrays[g.at-1]
}

func (g *group) int(v int64)     { g.next().int(v) }
func (g *group) text(s string)   { g.next().text(s) }
func (g *group) bool(v bool)     { g.next().bool(v) }
func (g *group) null()           { g.next().null() }
func (g *group) someInt(v int64) { g.next().some(v, 0) }
func (g *group) place(v int)     { g.next().some(int64(v), -1) }
func (g *group) someText(s string) {
	if a := g.next(); s == "" {
		a.null()
	} else {
		a.text(s)
	}
}

func (g *group) someBytes(b []byte) {
	if a := g.next(); len(b) == 0 {
		a.null()
	} else {
		a.bytes(b)
	}
}

func (g *group) time(i core.Instant) {
	if a := g.next(); i == 0 {
		a.null()
	} else {
		a.int(int64(i) - zeroTime)
	}
}

// params appends the arrays as parameters of a statement.
func (g *group) params(to [][]byte) [][]byte {
	for i := range g.arrays {
		to = append(to, g.arrays[i].param())
	}
	return to
}

func (g *group) reset() {
	g.rows = 0
	for i := range g.arrays {
		g.arrays[i].reset()
	}
}

// zeroTime is where PostgreSQL's timestamps begin, 2000-01-01, in microseconds.
const zeroTime = 946_684_800_000_000

const (
	headerBytes = 20      // of an array of one dimension
	keepBytes   = 1 << 20 // memory that an array keeps for the next commit
)

// array is an array of one dimension in PostgreSQL's binary form, built in place:
// a batch has some fifty of them, and what one value costs counts.
type array struct {
	buf     []byte
	oid     uint32
	n       int
	pending int // NULLs that no value has followed yet
	nulls   bool
}

// room counts one more value and writes the NULLs before it.
func (a *array) room() {
	for ; a.pending > 0; a.pending-- {
		a.buf = append(a.buf, 0xff, 0xff, 0xff, 0xff)
		a.n++
		a.nulls = true
	}
	a.n++
}

func (a *array) null() { a.pending++ }

func (a *array) int(v int64) {
	a.room()
	a.buf = binary.BigEndian.AppendUint64(append(a.buf, 0, 0, 0, 8), uint64(v))
}

// some adds v, or NULL for the value that means none.
func (a *array) some(v, none int64) {
	if v == none {
		a.null()
		return
	}
	a.int(v)
}

func (a *array) text(s string) {
	a.room()
	a.buf = append(binary.BigEndian.AppendUint32(a.buf, uint32(len(s))), s...)
}

func (a *array) bytes(b []byte) {
	a.room()
	a.buf = append(binary.BigEndian.AppendUint32(a.buf, uint32(len(b))), b...)
}

func (a *array) bool(v bool) {
	a.room()
	word := byte(0)
	if v {
		word = 1
	}
	a.buf = append(a.buf, 0, 0, 0, 1, word)
}

// param is the array as a parameter; the NULLs at its end are left out, because
// unnest fills a shorter array up with NULLs.
func (a *array) param() []byte {
	h := a.buf[:headerBytes]
	clear(h)
	binary.BigEndian.PutUint32(h[8:], a.oid)
	if a.n == 0 {
		return h[:12] // no dimension
	}
	binary.BigEndian.PutUint32(h, 1)
	if a.nulls {
		h[7] = 1
	}
	binary.BigEndian.PutUint32(h[12:], uint32(a.n))
	h[19] = 1 // the first index
	return a.buf
}

func (a *array) reset() {
	if cap(a.buf) == 0 || cap(a.buf) > keepBytes {
		a.buf = make([]byte, 0, 512)
	}
	a.buf = a.buf[:headerBytes]
	a.n, a.pending, a.nulls = 0, 0, false
}

// room is a message without bytes, that makes room in a connection's buffer for
// those that follow: the buffer starts small each time, and grows by copying.
type room int

// Frontend says who may send it.
func (room) Frontend() {}

// Decode reads nothing.
func (room) Decode([]byte) error { return nil }

// Encode adds nothing.
func (r room) Encode(dst []byte) ([]byte, error) { return slices.Grow(dst, int(r)), nil }
