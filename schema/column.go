package schema

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
)

// Type is what a column holds.
type Type uint8

// The types of columns.
const (
	Int8 Type = iota
	Int2
	Bool
	Time
	Text
	Bytes
)

// Null says what NULL means in a column. The value that NULL reads as is written as NULL.
type Null uint8

// What NULL means.
const (
	Never Null = iota // nothing: the column is NOT NULL
	None              // 0, or nothing
	Minus             // -1
)

// Part is what of a row a column is, and so who writes it.
type Part uint8

// The parts of rows. A column without one is only read.
const (
	Key   Part = 1 << iota
	Birth      // a row's first commit writes it, for good
	State      // every commit that changes the row writes it
	Claim      // a takeover writes it
)

// apart, as Column.Since, is a column that no digest covers.
const apart = -1

// Column is one column of a table whose rows have the form R in memory.
type Column[R any] struct {
	Name string
	Type Type
	Part Part
	Null Null
	// Since is which addition to the table the column came with, for the digests of the chain: a row without a value of
	// additions from one on keeps the digest that it had before them. 0: the table began with it; negative: no digest covers it.
	Since int
	Field[R]
}

// Field is where a row in memory has the value of a column: one of Int, Text and Bytes, as the value is held in memory.
type Field[R any] struct {
	Int   func(*R) int64 // also of a Bool, 1 or 0, and of a Time, in microseconds
	Text  func(*R) string
	Bytes func(*R) []byte
	Into  func(*R) any  // what a scan takes; nil: owners do not read the column
	Zero  func(*R) bool // whether the value that NULL reads as is one in this row, and not NULL; nil: it never is
}

func (c *Column[R]) none() int64 {
	if c.Null == Minus {
		return -1
	}
	return 0
}

// IntOf is the column's number in a row, and whether that is NULL.
func (c *Column[R]) IntOf(r *R) (v int64, null bool) {
	v = c.Int(r)
	return v, c.Null != Never && v == c.none() && (c.Zero == nil || !c.Zero(r))
}

// IsNull reports whether a column's text or bytes of that length are NULL in a row.
func (c *Column[R]) IsNull(length int, r *R) bool {
	return length == 0 && c.Null != Never && (c.Zero == nil || !c.Zero(r))
}

// read is the column in a select list.
func (c *Column[R]) read() string {
	switch {
	case c.Null == Never || c.Type == Time || c.Type == Bytes: // their scans take NULL
		return c.Name
	case c.Type == Text:
		return `COALESCE(` + c.Name + `, '')`
	}
	return fmt.Sprintf(`COALESCE(%s, %d)`, c.Name, c.none())
}

// Of are the columns of a part.
func Of[R any](columns []Column[R], part Part) (some []Column[R]) {
	for _, c := range columns {
		if c.Part&part != 0 {
			some = append(some, c)
		}
	}
	return some
}

// Join is a list of the columns: %[1]s is the name of each, %[2]d its place in the list, from 1 on.
func Join[R any](columns []Column[R], format string) string {
	list := make([]string, len(columns))
	for i := range columns {
		list[i] = strings.NewReplacer("%[1]s", columns[i].Name, "%[2]d", strconv.Itoa(i+1)).Replace(format)
	}
	return strings.Join(list, ", ")
}

// Names are the columns' names as a list.
func Names[R any](columns []Column[R]) string { return Join(columns, "%[1]s") }

// owned are the columns that owners read.
func owned[R any](columns []Column[R]) (some []Column[R]) {
	for _, c := range columns {
		if c.Into != nil {
			some = append(some, c)
		}
	}
	return some
}

// selected is the select list of columns.
func selected[R any](columns []Column[R]) string {
	list := make([]string, len(columns))
	for i := range columns {
		list[i] = columns[i].read()
	}
	return strings.Join(list, ", ")
}

// targets are where a scan of that select list puts the values of a row, and what comes after.
func targets[R any](columns []Column[R], r *R, more ...any) []any {
	to := make([]any, len(columns), len(columns)+len(more))
	for i := range columns {
		to[i] = columns[i].Into(r)
	}
	return append(to, more...)
}

// Args adds the values of a row to the arguments of a statement.
func Args[R any](to []any, columns []Column[R], r *R, at func(core.Instant) any) []any {
	for i := range columns {
		to = append(to, columns[i].arg(r, at))
	}
	return to
}

func (c *Column[R]) arg(r *R, at func(core.Instant) any) any {
	if c.Int != nil {
		v, null := c.IntOf(r)
		switch {
		case null:
			return nil
		case c.Type == Time:
			return at(core.Instant(v))
		case c.Type == Bool:
			return v != 0
		}
		return v
	}
	if c.Bytes != nil {
		v := c.Bytes(r)
		switch {
		case c.IsNull(len(v), r):
			return nil
		case v == nil:
			return []byte{}
		}
		return v
	}
	v := c.Text(r)
	switch {
	case c.IsNull(len(v), r):
		return nil
	case c.Type == Bytes:
		return []byte(v)
	}
	return v
}

// chained are the columns that digests cover, and the same as a table of package chain.
func chained[R any](tag byte, columns []Column[R]) (some []Column[R], table *chain.Table) {
	var covered []chain.Column
	for _, c := range columns {
		if c.Since < 0 {
			continue
		}
		form := chain.Number
		switch c.Type {
		case Text:
			form = chain.Text
		case Bytes:
			form = chain.Bytes
		}
		some = append(some, c)
		covered = append(covered, chain.Column{Name: c.Name, Form: form, None: c.none(), Since: c.Since})
	}
	return some, chain.NewTable(tag, covered)
}

// digest is that of a row which a commit writes. values is memory for it.
func digest[R any](h *chain.Hasher, table *chain.Table, columns []Column[R], r *R, values []chain.Value) (chain.Digest, []chain.Value) {
	values = values[:0]
	for i := range columns {
		c := &columns[i]
		switch {
		case c.Int != nil:
			values = append(values, chain.Value{Int: c.Int(r)})
		case c.Bytes != nil:
			values = append(values, chain.Value{Bytes: c.Bytes(r)})
		default:
			values = append(values, chain.Value{Text: c.Text(r)})
		}
	}
	return h.Row(&chain.Row{Table: table, Values: values}), values
}

// The fields of rows by what is in memory; at tells where.

func number[R any, T ~int | ~int16 | ~int64 | ~uint64](at func(*R) *T) Field[R] {
	return Field[R]{Int: func(r *R) int64 { return int64(*at(r)) }, Into: func(r *R) any { return at(r) }}
}

func when[R any](at func(*R) *core.Instant) Field[R] {
	return Field[R]{Int: func(r *R) int64 { return int64(*at(r)) }, Into: func(r *R) any { return (*instant)(at(r)) }}
}

func boolean[R any](at func(*R) *bool) Field[R] {
	return Field[R]{Int: func(r *R) int64 {
		if *at(r) {
			return 1
		}
		return 0
	}, Into: func(r *R) any { return at(r) }}
}

func text[R any, T ~string](at func(*R) *T) Field[R] {
	return Field[R]{Text: func(r *R) string { return string(*at(r)) }, Into: func(r *R) any { return at(r) }}
}

// raw is a text that may be any bytes.
func raw[R any](at func(*R) *string) Field[R] {
	return Field[R]{Text: func(r *R) string { return *at(r) }, Into: func(r *R) any { return (*rawText)(at(r)) }}
}

func blob[R any](at func(*R) *[]byte) Field[R] {
	return Field[R]{Bytes: func(r *R) []byte { return *at(r) }, Into: func(r *R) any { return at(r) }}
}

// only is a field that owners do not read.
func only[R any](f Field[R]) Field[R] {
	f.Into = nil
	return f
}

// held is a field whose zero is a value of its own in some rows.
func held[R any](in func(*R) bool, f Field[R]) Field[R] {
	f.Zero = in
	return f
}

// instant scans a time as either store keeps it.
type instant core.Instant

// Scan accepts a timestamp, microseconds, or NULL.
func (i *instant) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*i = 0
	case time.Time:
		*i = instant(core.InstantOf(v))
	case int64:
		*i = instant(v)
	default:
		return fmt.Errorf("cannot read %T as a time", v)
	}
	return nil
}

// rawText scans bytes as a text; NULL is none.
type rawText string

// Scan accepts bytes or NULL.
func (t *rawText) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok && v != nil {
		return fmt.Errorf("cannot read %T as bytes", v)
	}
	*t = rawText(b)
	return nil
}

// flagOrNumber scans whatever package chain takes as a number.
type flagOrNumber int64

// Scan accepts a flag, or what is a time or a number.
func (n *flagOrNumber) Scan(v any) error {
	if is, ok := v.(bool); ok {
		v = int64(0)
		if is {
			v = int64(1)
		}
	}
	return (*instant)(n).Scan(v)
}
