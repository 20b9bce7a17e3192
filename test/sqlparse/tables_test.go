package sqlparse

import (
	"slices"
	"strings"
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// tables is what the migrations say of the tables.
type tables struct {
	unique   map[string][]string // of each table, the columns of its unique indexes, sorted
	nullable map[string]bool     // "table.column" that may be NULL
}

// arbiters is how many unique indexes of a table have those columns.
func (t tables) arbiters(table string, columns []string) int {
	n := 0
	for _, have := range t.unique[table] {
		if have == key(columns) {
			n++
		}
	}
	return n
}

func key(columns []string) string {
	columns = slices.Clone(columns)
	slices.Sort(columns)
	return strings.Join(columns, ",")
}

func tablesOf(t *testing.T, texts []string) tables {
	t.Helper()
	known := tables{unique: map[string][]string{}, nullable: map[string]bool{}}
	for _, text := range texts {
		tree, err := pg.Parse(text)
		if err != nil {
			continue // said where each text is parsed
		}
		for _, s := range tree.Stmts {
			if c := s.Stmt.GetCreateStmt(); c != nil {
				known.create(c)
			}
			if i := s.Stmt.GetIndexStmt(); i != nil && i.Unique && i.WhereClause == nil {
				known.index(i)
			}
		}
	}
	if len(known.unique) < 5 || !known.nullable["tasks.complete_by"] || known.nullable["journal.seq"] {
		t.Fatalf("the tables of the migrations are %+v", known)
	}
	return known
}

func (t tables) create(c *pg.CreateStmt) {
	table := c.Relation.GetRelname()
	for _, e := range c.TableElts {
		if k := e.GetConstraint(); k != nil && len(k.Keys) > 0 {
			var columns []string
			for _, name := range k.Keys {
				columns = append(columns, name.GetString_().GetSval())
			}
			t.unique[table] = append(t.unique[table], key(columns))
		}
		if d := e.GetColumnDef(); d != nil {
			t.column(table, d)
		}
	}
}

func (t tables) column(table string, d *pg.ColumnDef) {
	null := true
	for _, c := range d.Constraints {
		switch c.GetConstraint().GetContype() {
		case pg.ConstrType_CONSTR_PRIMARY:
			t.unique[table] = append(t.unique[table], d.Colname)
			null = false
		case pg.ConstrType_CONSTR_UNIQUE:
			t.unique[table] = append(t.unique[table], d.Colname)
		case pg.ConstrType_CONSTR_NOTNULL:
			null = false
		}
	}
	if null && !t.inKey(table, d.Colname) {
		t.nullable[table+"."+d.Colname] = true
	}
}

func (t tables) inKey(table, column string) bool {
	return slices.ContainsFunc(t.unique[table], func(k string) bool { return slices.Contains(strings.Split(k, ","), column) })
}

func (t tables) index(i *pg.IndexStmt) {
	var columns []string
	for _, p := range i.IndexParams {
		columns = append(columns, p.GetIndexElem().GetName())
	}
	table := i.Relation.GetRelname()
	t.unique[table] = append(t.unique[table], key(columns))
}
