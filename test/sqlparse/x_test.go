package sqlparse

import (
	_ "duly.dev/duly/schema/storetest"
	_ "github.com/cockroachdb/cockroachdb-parser/pkg/sql/parser"
	_ "github.com/pganalyze/pg_query_go/v6"
	_ "github.com/jackc/pgx/v5"
)
