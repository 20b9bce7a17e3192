// Package node plugs roles and adapters together.
package node

import (
	_ "duly.dev/duly/ingest"
	_ "duly.dev/duly/internal/natsbus"
	_ "duly.dev/duly/schema"
	_ "github.com/pressly/goose/v3" // breach: may not link sql
)
