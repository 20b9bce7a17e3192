package schema

import (
	"encoding/binary"
)

// field is one column that a statement unnests from an array parameter.
type field struct{ name, typ string }

// oids of the element types.
var oids = map[string]uint32{"BOOL": 16, "BYTEA": 17, "INT8": 20, "TEXT": 25, "TIMESTAMPTZ": 1184}

// group is the columns of one unnest, made of the rows of tuples.
type group struct{ arrays []array }

func newGroup(cols []field) group {
	g := group{arrays: make([]array, len(cols))}
	for i := range cols {
		g.arrays[i].oid = oids[cols[i].typ]
		g.arrays[i].reset()
	}
	return g
}

// fill takes the first columns of each row.
func (g *group) fill(t *tuples) {
	for i := range g.arrays {
		g.arrays[i].reset()
	}
	for at := 0; at < len(t.buf); {
		n := int(binary.BigEndian.Uint16(t.buf[at:]))
		at += 2
		for i := range n {
			size := max(int(int32(binary.BigEndian.Uint32(t.buf[at:]))), 0)
			if i < len(g.arrays) {
				g.arrays[i].element(t.buf[at : at+4+size])
			}
			at += 4 + size
		}
	}
}

// params appends the arrays as parameters of a statement.
func (g *group) params(to [][]byte) [][]byte {
	for i := range g.arrays {
		to = append(to, g.arrays[i].param())
	}
	return to
}

const headerBytes = 20 // of an array of one dimension

// array is an array of one dimension in PostgreSQL's binary form, built in place.
type array struct {
	scratch
	oid   uint32
	n     int
	nulls bool
}

// element adds one value with its length before it, as tuples hold it.
func (a *array) element(v []byte) {
	a.nulls = a.nulls || v[0] == 0xff
	a.buf = append(a.buf, v...)
	a.n++
}

func (a *array) int(v int64) {
	a.buf = binary.BigEndian.AppendUint64(append(a.buf, 0, 0, 0, 8), uint64(v))
	a.n++
}

// param is the array as a parameter.
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
	a.empty()
	a.buf = append(a.buf, make([]byte, headerBytes)...)
	a.n, a.nulls = 0, false
}
