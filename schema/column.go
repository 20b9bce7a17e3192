package schema

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
)

// Type is how the database stores a column.
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

// Null says what NULL means in a column. A commit writes the value that NULL stands for as NULL, and reading
// turns it back.
type Null uint8

// The meanings of NULL.
const (
	Never Null = iota // nothing: the column is NOT NULL
	None              // 0, or nothing
	minus             // -1
)

// Part says which writer sets a column: a birth, a change or a takeover.
type Part uint8

// The parts. A column may have several, or none: then no commit or takeover writes it.
const (
	Key   Part = 1 << iota
	Birth      // a row's first commit writes it, for good
	State      // every commit that changes the row writes it
	claim      // a takeover writes it
)

// apart, as Column.Since, keeps a column out of the digests of the chain.
const apart = -1

// Column is one column of a table whose rows are Rs in memory. The statements of both databases, the
// arguments of commits, the targets of scans and the digests are all made from lists of these.
type Column[R any] struct {
	Name string
	Type Type
	Part Part
	Null Null
	// Since numbers the addition to the table that brought the column; 0: the table began with it; negative:
	// no digest covers it. A row with no value in the columns of later additions keeps the digest that it had
	// before they came.
	Since int
	Field[R]
}

// Field reads and scans a column's value in a row: one of Int, Text and Bytes is set. A commit calls it for
// each value, some three hundred for each task, so nothing is between it and the row.
type Field[R any] struct {
	// Int is also a flag, as 1 or 0, and a time in microseconds.
	Int   func(*R) int64
	Text  func(*R) string
	Bytes func(*R) []byte
	// Into is what a scan writes to; nil: owners do not read the column.
	Into func(*R) any
	// Zero reports whether the value that NULL stands for is a real value in this row, to be stored as
	// itself. nil: it never is.
	Zero func(*R) bool
}

// None is the number that NULL stands for.
func (c *Column[R]) None() int64 {
	if c.Null == minus {
		return -1
	}
	return 0
}

// IsNull reports whether the row stores the value None, or an empty text, as NULL.
func (c *Column[R]) IsNull(r *R) bool { return c.Null != Never && (c.Zero == nil || !c.Zero(r)) }

// selected is the column in a select list, with NULL replaced by what it stands for where the scan would not
// take NULL.
func (c *Column[R]) selected() string {
	switch {
	case c.Null == Never || c.Type == Time || c.Type == Bytes: // their scans take NULL
		return c.Name
	case c.Type == Text:
		return `COALESCE(` + c.Name + `, '')`
	}
	return fmt.Sprintf(`COALESCE(%s, %d)`, c.Name, c.None())
}

// Of returns the columns that have one of the parts.
func Of[R any](columns []Column[R], part Part) (some []Column[R]) {
	for _, c := range columns {
		if c.Part&part != 0 {
			some = append(some, c)
		}
	}
	return some
}

// Join formats each column and joins the results by commas: %[1]s is the column's name, %[2]d its position
// from 1 on.
func Join[R any](columns []Column[R], format string) string {
	list := make([]string, len(columns))
	for i := range columns {
		list[i] = strings.NewReplacer("%[1]s", columns[i].Name, "%[2]d", strconv.Itoa(i+1)).Replace(format)
	}
	return strings.Join(list, ", ")
}

// Names are the columns' names as a list.
func Names[R any](columns []Column[R]) string { return Join(columns, "%[1]s") }

// owned returns the columns that owners read back.
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
		list[i] = columns[i].selected()
	}
	return strings.Join(list, ", ")
}

// targets returns what a scan of the select list of columns writes to, followed by more.
func targets[R any](columns []Column[R], r *R, more ...any) []any {
	to := make([]any, len(columns), len(columns)+len(more))
	for i := range columns {
		to[i] = columns[i].Into(r)
	}
	return append(to, more...)
}

// Args appends the values of a row to the arguments of a statement. at makes the dialect's parameter of a
// time.
func Args[R any](to []any, columns []Column[R], r *R, at func(core.Instant) any) []any {
	for i := range columns {
		to = append(to, columns[i].arg(r, at))
	}
	return to
}

// arg is the column's value in a row as an argument of database/sql.
func (c *Column[R]) arg(r *R, at func(core.Instant) any) any {
	v := c.value(r)
	switch {
	case v.Int == c.None() && len(v.Text)+len(v.Bytes) == 0 && c.IsNull(r):
		return nil
	case c.Type == Time:
		return at(core.Instant(v.Int))
	case c.Type == Bool:
		return v.Int != 0
	case c.Type == Text:
		return v.Text
	case c.Type == Bytes && v.Bytes != nil:
		return v.Bytes
	case c.Type == Bytes:
		return []byte(v.Text)
	}
	return v.Int
}

// value is the column's value in a row in the form that digests take.
func (c *Column[R]) value(r *R) (v chain.Value) {
	switch {
	case c.Int != nil:
		v.Int = c.Int(r)
	case c.Text != nil:
		v.Text = c.Text(r)
	default:
		v.Bytes = c.Bytes(r)
	}
	return v
}

// chained returns the columns that digests cover, and the description of them that package chain works with.
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
		covered = append(covered, chain.Column{Name: c.Name, Form: form, None: c.None(), Since: c.Since})
	}
	return some, chain.NewTable(tag, covered)
}

// bit is a flag as it is stored and digested: 1 or 0.
func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// scanner is a scan target that passes a text, or bytes, to a function.
type scanner func(text string)

// Scan accepts either, or NULL.
func (s scanner) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		s("")
	case string:
		s(v)
	case []byte:
		s(string(v))
	default:
		return fmt.Errorf("cannot read %T as a text", v)
	}
	return nil
}

// instant scans a time as either database stores it: PostgreSQL has timestamps, SQLite microseconds. It also
// serves for numbers and flags.
type instant core.Instant

// Scan accepts a timestamp, microseconds, a flag, or NULL.
func (i *instant) Scan(v any) error {
	*i = 0
	switch v := v.(type) {
	case nil:
	case time.Time:
		*i = instant(core.InstantOf(v))
	case int64:
		*i = instant(v)
	case bool:
		if v {
			*i = 1
		}
	default:
		return fmt.Errorf("cannot read %T as a time", v)
	}
	return nil
}
