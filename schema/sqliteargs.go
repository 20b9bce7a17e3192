package schema

import (
	"bytes"
	"strings"

	"modernc.org/libc"
	lite "modernc.org/sqlite/lib"
)

// liteArgs are the parameters of a statement. Texts lie one after the other in
// bytes; the memory is kept between statements.
type liteArgs struct {
	args  []liteArg
	bytes []byte
}

type liteArg struct {
	kind  liteKind
	value int64 // an integer, or how long the text is
	from  int   // where in bytes the text begins
}

type liteKind uint8

const (
	liteNull liteKind = iota
	liteInt
	liteText
	liteBlob
)

func (a *liteArgs) reset() { a.args, a.bytes = a.args[:0], a.bytes[:0] }

func (a *liteArgs) null() { a.args = append(a.args, liteArg{}) }

func (a *liteArgs) int(v int64) { a.args = append(a.args, liteArg{kind: liteInt, value: v}) }

// intOr is NULL for the value that stands for none.
func (a *liteArgs) intOr(v, none int64) {
	if v == none {
		a.null()
		return
	}
	a.int(v)
}

func (a *liteArgs) bool(v bool) {
	if v {
		a.int(1)
		return
	}
	a.int(0)
}

func (a *liteArgs) text(v string) {
	a.args = append(a.args, liteArg{kind: liteText, value: int64(len(v)), from: len(a.bytes)})
	a.bytes = append(a.bytes, v...)
}

// textOr is NULL for no text.
func (a *liteArgs) textOr(v string) {
	if v == "" {
		a.null()
		return
	}
	a.text(v)
}

// blob is NULL for no bytes, because readers take no bytes for NULL.
func (a *liteArgs) blob(v []byte) {
	if len(v) == 0 {
		a.null()
		return
	}
	a.args = append(a.args, liteArg{kind: liteBlob, value: int64(len(v)), from: len(a.bytes)})
	a.bytes = append(a.bytes, v...)
}

// words are a person's or an agent's, kept as bytes; none are NULL.
func (a *liteArgs) words(v string) {
	a.textOr(v)
	if v != "" {
		a.args[len(a.args)-1].kind = liteBlob
	}
}

// liteFound is the row that a query stands at.
type liteFound struct {
	tls       *libc.TLS
	statement uintptr
}

func (r liteFound) int(column int32) int64 {
	return lite.Xsqlite3_column_int64(r.tls, r.statement, column)
}

func (r liteFound) text(column int32) string { return string(r.blob(column)) }

// blob is a copy of the bytes; nil for NULL.
func (r liteFound) blob(column int32) []byte {
	p := lite.Xsqlite3_column_blob(r.tls, r.statement, column)
	if p == 0 {
		return nil
	}
	return bytes.Clone(libc.GoBytes(p, int(lite.Xsqlite3_column_bytes(r.tls, r.statement, column))))
}

// liteSizes are the numbers of rows that one statement writes: many at once cost
// less each, and the smaller ones make up the rest.
var liteSizes = [...]int{64, 16, 4, 1}

// liteBytes is how much may be gathered before it is written.
const liteBytes = 1 << 20

// liteRows gathers rows of one table and writes many with one statement.
type liteRows struct {
	liteArgs
	queries [len(liteSizes)]string
	width   int          // parameters of a row
	from    []liteSource // of the gathered rows
	// missing hears of rows of which the statement left out some.
	missing func(rows []liteSource) error
}

// liteSource is where in the batch a row comes from.
type liteSource struct{ write, record int }

// newLiteRows takes a row's values with a ? for each parameter.
func newLiteRows(insert, row, conflict string) *liteRows {
	r := &liteRows{width: strings.Count(row, "?")}
	for i, n := range liteSizes {
		r.queries[i] = insert + row + strings.Repeat(", "+row, n-1) + conflict
	}
	return r
}

func (r *liteRows) reset() {
	r.liteArgs.reset()
	r.from = r.from[:0]
}

// end ends a row, and writes what is gathered when it is enough.
func (r *liteRows) end(c *liteConn, write, record int) error {
	r.from = append(r.from, liteSource{write, record})
	if len(r.from) < liteSizes[0] && len(r.bytes) < liteBytes {
		return nil
	}
	return r.flush(c)
}

// flush writes what is gathered.
func (r *liteRows) flush(c *liteConn) error {
	defer r.reset()
	c.load(r.bytes)
	done := 0
	var short []liteSource
	for i, size := range liteSizes {
		for ; len(r.from)-done >= size; done += size {
			n, err := c.run(r.queries[i], r.args[done*r.width:(done+size)*r.width])
			if err != nil {
				return err
			}
			if n != size {
				short = append(short, r.from[done:done+size]...)
			}
		}
	}
	if len(short) == 0 {
		return nil
	}
	return r.missing(short)
}
