package sqlparse

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Statements that CockroachDB has not, or has with another meaning.
var statements = map[string]string{
	"DoStmt": "DO block", "LockStmt": "LOCK TABLE", "MergeStmt": "MERGE", "VacuumStmt": "VACUUM or ANALYZE", "ClusterStmt": "CLUSTER",
	"NotifyStmt": "NOTIFY", "ListenStmt": "LISTEN", "UnlistenStmt": "UNLISTEN", "RangeTableSample": "TABLESAMPLE", "PartitionSpec": "PARTITION BY",
	"NamedArgExpr": "named argument", "CreateExtensionStmt": "extension", "ReindexStmt": "REINDEX", "CopyStmt": "COPY",
}

// shared are the functions known to be in both, with the same meaning. Another
// one has to be looked up before it is added.
var shared = []string{
	"array_agg", "cardinality", "coalesce", "count", "generate_series", "greatest", "least", "length", "lower", "max", "min", "now", "sum", "unnest", "upper", "version",
	"current_schema", "gen_random_uuid", "clock_timestamp", "row_number", "set_config",
}

// types are those of columns and casts that mean the same in both.
var types = []string{"int8", "int2", "text", "bytea", "bool", "timestamptz", "float8", "interval"}

// settings of a session that both know.
var settings = []string{"statement_timeout", "lock_timeout", "default_transaction_isolation", "idle_in_transaction_session_timeout"}

// system are columns that PostgreSQL adds to every row.
var system = []string{"xmin", "xmax", "cmin", "cmax", "ctid", "oid"}

// visit calls f for each message of a tree, parents first.
func visit(m protoreflect.Message, f func(name string, m protoreflect.Message)) {
	f(string(m.Descriptor().Name()), m)
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if d.Kind() != protoreflect.MessageKind {
			return true
		}
		if d.IsList() {
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message(), f)
			}
			return true
		}
		visit(v.Message(), f)
		return true
	})
}

// search collects what the two servers do not share in one statement.
type search struct {
	known    tables
	found    []string
	tables   map[string]bool
	mutated  map[string]int
	sorted   map[string]bool // columns in an ORDER BY without NULLS
	compared map[string]bool // columns that a condition keeps from being NULL
}

func notShared(n *pg.Node, known tables) []string {
	s := &search{known: known, tables: map[string]bool{}, mutated: map[string]int{}, sorted: map[string]bool{}, compared: map[string]bool{}}
	visit(n.ProtoReflect(), s.look)
	for table, times := range s.mutated {
		if times > 1 {
			s.say("%d mutations of %s in one statement", times, table)
		}
	}
	for column := range s.sorted {
		inSome := slices.ContainsFunc(slices.Collect(maps.Keys(s.tables)), func(t string) bool { return known.nullable[t+"."+column] })
		if inSome && !s.compared[column] {
			s.say("sorted by %s, which may be NULL, and NULLs sort the other way", column)
		}
	}
	slices.Sort(s.found)
	return s.found
}

func (s *search) say(format string, args ...any) {
	s.found = append(s.found, fmt.Sprintf(format, args...))
}

func (s *search) look(name string, m protoreflect.Message) {
	if what := statements[name]; what != "" {
		s.say("%s", what)
	}
	switch v := m.Interface().(type) {
	case *pg.RangeVar:
		s.tables[v.Relname] = true
	case *pg.FuncCall:
		s.call(v)
	case *pg.TypeName:
		if t := last(v.Names); t != "" && !slices.Contains(types, t) {
			s.say("type %s", t)
		}
	case *pg.A_Expr:
		s.operator(v)
	case *pg.ColumnRef:
		if c := last(v.Fields); slices.Contains(system, c) {
			s.say("system column %s", c)
		}
	case *pg.Constraint:
		if v.Contype == pg.ConstrType_CONSTR_EXCLUSION {
			s.say("EXCLUDE")
		}
		if v.Contype == pg.ConstrType_CONSTR_IDENTITY {
			s.say("identity, which CockroachDB makes of a sequence with a right of its own")
		}
	case *pg.NullTest:
		if v.Nulltesttype == pg.NullTestType_IS_NOT_NULL {
			s.notNull(v.Arg)
		}
	case *pg.VariableSetStmt:
		if !slices.Contains(settings, v.Name) {
			s.say("setting %s", v.Name)
		}
	case *pg.InsertStmt:
		s.mutated[v.Relation.GetRelname()]++
		s.arbiter(v)
	case *pg.UpdateStmt:
		s.mutated[v.Relation.GetRelname()]++
	case *pg.DeleteStmt:
		s.mutated[v.Relation.GetRelname()]++
	case *pg.SortBy:
		if c := v.Node.GetColumnRef(); c != nil && v.SortbyNulls == pg.SortByNulls_SORTBY_NULLS_DEFAULT {
			s.sorted[last(c.Fields)] = true
		}
	}
}

func (s *search) call(v *pg.FuncCall) {
	name := last(v.Funcname)
	switch {
	case strings.Contains(name, "advisory"):
		s.say("advisory lock")
	case name == "pg_notify":
		s.say("NOTIFY")
	case !slices.Contains(shared, name):
		s.say("function %s, not known to be in both", name)
	}
}

func (s *search) operator(v *pg.A_Expr) {
	op := last(v.Name)
	switch op {
	case "/", "^":
		s.say("operator %s on integers", op)
	case "->", "->>", "@>", "<@", "?", "#>", "#>>":
		s.say("operator %s of JSON", op)
	case "<", ">", "<=", ">=", "=":
		for _, side := range []*pg.Node{v.Lexpr, v.Rexpr} {
			s.notNull(side)
		}
	}
}

// notNull notes the columns that a condition leaves no NULL of.
func (s *search) notNull(n *pg.Node) {
	if c := n.GetColumnRef(); c != nil {
		s.compared[last(c.Fields)] = true
	}
	if row := n.GetRowExpr(); row != nil {
		s.notNull(row.Args[0])
	}
}

// arbiter: the columns of an ON CONFLICT are those of just one unique index, which
// has all rows.
func (s *search) arbiter(v *pg.InsertStmt) {
	c := v.OnConflictClause
	if c == nil || c.Infer == nil {
		return
	}
	if c.Infer.Conname != "" {
		s.say("ON CONFLICT ON CONSTRAINT")
		return
	}
	var columns []string
	for _, e := range c.Infer.IndexElems {
		columns = append(columns, e.GetIndexElem().GetName())
	}
	if n := s.known.arbiters(v.Relation.GetRelname(), columns); n != 1 {
		s.say("%d arbiters for ON CONFLICT (%s)", n, strings.Join(columns, ", "))
	}
}

// last is the last name of a list, without what stands before it.
func last(names []*pg.Node) string {
	if len(names) == 0 {
		return ""
	}
	return strings.ToLower(names[len(names)-1].GetString_().GetSval())
}
