// Package ingest breaks what a role may break.
package ingest

import (
	_ "database/sql" // breach: may not link sql
	_ "fmt"

	_ "duly.dev/duly/internal/bus" // breach: ingest may not import internal/bus
	_ "duly.dev/duly/internal/core"
	_ "duly.dev/duly/scheduler"    // breach: role ingest imports role scheduler
	_ "github.com/nats-io/nats.go" // breach: may not link nats
)

// A comment on duly.submit.x names no subject.
const (
	door   = "duly.submit." // breach: is named outside internal/bus
	raw    = `duly.in.x`    // breach: is named outside internal/bus
	bare   = "duly."        // breach: is named outside internal/bus
	format = "duly.%s.x"    // breach: is named outside internal/bus
	file   = "duly.db"
	site   = "duly.dev/duly"
)
