package chain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Form is how a value of a column is hashed and shown.
type Form uint8

// The forms of values.
const (
	Number Form = iota // also a flag, 1 or 0, and a time in microseconds
	Text
	Bytes // base64 in JSON
)

// Column is a column of a table whose rows are in links.
type Column struct {
	Name  string
	Form  Form
	None  int64 // the number that NULL reads as; a text reads as none
	Since int   // which addition to the table it came with; 0: it was there from the beginning
}

// Table says what of its rows is hashed, and in which order: the numbers and then the rest of the columns of the beginning,
// then those of each addition up to the last one of which a row has a value. So a column that is added changes no digest.
type Table struct {
	tag     byte
	columns []Column
	order   []int // places of columns, as they are hashed
}

// NewTable is a table of which the digests of rows begin with a tag of its own.
func NewTable(tag byte, columns []Column) *Table {
	t := &Table{tag: tag, columns: columns, order: make([]int, len(columns))}
	for i := range t.order {
		t.order[i] = i
	}
	place := func(i int) int { return 2*columns[i].Since + min(int(columns[i].Form), 1) }
	slices.SortStableFunc(t.order, func(a, b int) int { return place(a) - place(b) })
	return t
}

// Tables are those whose rows links name.
type Tables struct{ Tasks, Journal *Table }

// Value is what is stored in a column: a number, or a text or bytes. What a NULL reads as is the same value.
type Value struct {
	Int   int64
	Text  string
	Bytes []byte
}

// Row is a row of a table, with the values of its columns as they are stored.
type Row struct {
	Table  *Table
	Values []Value
}

// Int is the number in a column, and Text the text in one.
func (r *Row) Int(column string) int64 { return r.value(column).Int }

// Text is the text in a column.
func (r *Row) Text(column string) string { return r.value(column).Text }

func (r *Row) value(column string) (v Value) {
	if i := slices.IndexFunc(r.Table.columns, func(c Column) bool { return c.Name == column }); i >= 0 {
		v = r.Values[i]
	}
	return v
}

func (c *Column) isNone(v *Value) bool {
	return len(v.Text)+len(v.Bytes) == 0 && v.Int == c.None
}

// MarshalJSON implements [json.Marshaler]: an object of what is not none, in the order of the columns.
func (r *Row) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i := range r.Values {
		c, v := &r.Table.columns[i], &r.Values[i]
		var value any = v.Int
		switch {
		case c.isNone(v):
			continue
		case c.Form == Text:
			value = v.Text
		case c.Form == Bytes:
			value = append([]byte(v.Text), v.Bytes...)
		}
		shown, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(strconv.AppendQuote(text, c.Name), ':'), shown...)
	}
	return append(text, '}'), nil
}

// row reads what MarshalJSON wrote of a row of the table.
func (t *Table) row(text []byte) (*Row, error) {
	var named map[string]json.RawMessage
	if err := json.Unmarshal(text, &named); err != nil {
		return nil, err
	}
	r := &Row{t, make([]Value, len(t.columns))}
	for i := range t.columns {
		c, v := &t.columns[i], &r.Values[i]
		shown, ok := named[c.Name]
		if !ok {
			v.Int = c.None
			continue
		}
		delete(named, c.Name)
		var into any = &v.Int
		switch c.Form {
		case Text:
			into = &v.Text
		case Bytes:
			into = &v.Bytes
		}
		if err := json.Unmarshal(shown, into); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	for name := range named {
		return nil, fmt.Errorf("column %q: this binary knows none of that name", name)
	}
	return r, nil
}

// Hasher makes digests; its memory serves one after the other.
type Hasher struct{ buf []byte }

// Row is the digest of a row.
func (h *Hasher) Row(r *Row) Digest {
	last := 0
	for i := range r.Values {
		if c := &r.Table.columns[i]; c.Since > last && !c.isNone(&r.Values[i]) {
			last = c.Since
		}
	}
	h.buf = append(h.buf[:0], r.Table.tag)
	for _, i := range r.Table.order {
		c, v := &r.Table.columns[i], &r.Values[i]
		if c.Since > last {
			break
		}
		if c.Form == Number {
			h.buf = binary.AppendVarint(h.buf, v.Int)
			continue
		}
		h.buf = binary.AppendUvarint(h.buf, uint64(len(v.Text)+len(v.Bytes)))
		h.buf = append(append(h.buf, v.Text...), v.Bytes...)
	}
	sum := sha256.Sum256(h.buf)
	return Digest(sum[:DigestBytes])
}
