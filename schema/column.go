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
	minus             // -1
)

// Part is what of a row a column is, and so who writes it.
type Part uint8

// The parts of rows. A column without one is only read.
const (
	Key   Part = 1 << iota
	Birth      // a row's first commit writes it, for good
	State      // every commit that changes the row writes it
	claim      // a takeover writes it
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

// Field is where a row in memory has the value of a column: one of Int, Text and Bytes, as it is in memory. These are what
// a commit calls for each value, so that nothing is between them and the row.
type Field[R any] struct {
	Int   func(*R) int64 // also a flag, 1 or 0, and a time in microseconds
	Text  func(*R) string
	Bytes func(*R) []byte
	Into  func(*R) any  // what a scan takes; nil: owners do not read the column
	Zero  func(*R) bool // whether what NULL reads as is a value of its own in this row; nil: it never is
}

// None is the number that NULL reads as.
func (c *Column[R]) None() int64 {
	if c.Null == minus {
		return -1
	}
	return 0
}

// IsNull reports whether None, or no text, is NULL in a row.
func (c *Column[R]) IsNull(r *R) bool { return c.Null != Never && (c.Zero == nil || !c.Zero(r)) }

// selected is the column in a select list.
func (c *Column[R]) selected() string {
	switch {
	case c.Null == Never || c.Type == Time || c.Type == Bytes: // their scans take NULL
		return c.Name
	case c.Type == Text:
		return `COALESCE(` + c.Name + `, '')`
	}
	return fmt.Sprintf(`COALESCE(%s, %d)`, c.Name, c.None())
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
		list[i] = columns[i].selected()
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
		covered = append(covered, chain.Column{Name: c.Name, Form: form, None: c.None(), Since: c.Since})
	}
	return some, chain.NewTable(tag, covered)
}

// bit is a flag as a number.
func bit(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// scanner scans a text, or bytes.
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

// instant scans a time as either store keeps it, and any number.
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
