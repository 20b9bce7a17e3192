package schema

// A list as a condition on the second column of a key, number = ANY($2), is a mere
// filter where the planner takes the table for small: each row of the partition is
// compared with each number. Plans are kept, so one from when a table was empty
// serves it with a million rows in it, and a generation of the journal begins empty
// every time. Therefore rows are looked up one by one, by a subquery that OFFSET 0
// keeps from becoming anything else, and what changes them goes by where they are.
// CockroachDB has no plans of that kind, and no such places.

// eachOf is the columns of the rows of partition ?1 whose column is in the list ?2,
// as FROM; and begins with AND, or is empty.
func eachOf(columns, table, column, and string) string {
	list := `INT8`
	if column == "id" {
		list = `TEXT`
	}
	return ` FROM (SELECT DISTINCT unnest(?2::` + list + `[]) AS wanted) AS w CROSS JOIN LATERAL (SELECT ` + columns +
		` FROM ` + table + ` WHERE partition = ?1 AND ` + column + ` = wanted` + and + ` OFFSET 0) AS r`
}

// placed is the condition of the rows of a table whose number is in the list ?2, if
// provided is true. It must stand alone: beside a condition that an index serves, it
// may be a filter again. The partition of the rows has to be held.
func placed(table, and, provided string) string {
	return `ctid = ANY(ARRAY(SELECT r.ctid` + eachOf("ctid", table, "number", and) + ` WHERE ` + provided + `))`
}

// among is that of a reader, see there.
func (p *postgres) among(table, column string) string {
	if p.dialect == "cockroach" {
		return ` FROM ` + table + ` WHERE partition = ?1 AND ` + column + ` ` + inList(column)
	}
	return eachOf("*", table, column, "")
}

// chosen is the condition of the tasks whose number is in the list ?2, if the epoch
// of the partition is ?4.
func (p *postgres) chosen(and string) string {
	if p.dialect == "cockroach" {
		return `partition = ?1 AND number ` + inList("number") + and + ` AND ` + stillOurs
	}
	return placed("tasks", and, stillOurs)
}

func inList(column string) string {
	if column == "id" {
		return `= ANY(?2::TEXT[])`
	}
	return `= ANY(?2::INT8[])`
}
