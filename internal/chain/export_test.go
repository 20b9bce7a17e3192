package chain

// RowOf is a row of a table as an export has it.
func RowOf(t *Table, text []byte) (*Row, error) { return t.row(text) }
