// Package schema may do what it does here.
package schema

import (
	_ "database/sql"

	_ "duly.dev/duly/internal/core"
	_ "duly.dev/duly/internal/natsbus" // breach: schema may not import internal/natsbus
	_ "duly.dev/duly/schema/lite"      // breach: schema may not import schema/lite
	_ "github.com/cockroachdb/cockroach-go/v2/crdb"
)
