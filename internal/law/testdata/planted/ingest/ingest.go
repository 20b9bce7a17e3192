// Package ingest breaks what a role may break.
package ingest

import (
	_ "database/sql" // breach: may not link sql
	_ "fmt"

	_ "duly.dev/duly/internal/core"
	_ "duly.dev/duly/internal/natsbus" // breach: ingest may not import internal/natsbus
	_ "duly.dev/duly/scheduler"        // breach: role ingest imports role scheduler
	_ "github.com/nats-io/nats.go"     // breach: may not link nats
)

// A comment on duly.submit.x names no subject.
const (
	door   = "duly.submit." // breach: is a name of the default namespace
	raw    = `duly.in.x`    // breach: is a name of the default namespace
	bare   = "duly."        // breach: is a name of the default namespace
	format = "duly.%s.x"    // breach: is a name of the default namespace
	stream = "DULY_TASKS"   // breach: is a name of the default namespace
	told   = "to duly.do.x" // breach: is a name of the default namespace
	file   = "duly.db"
	site   = "duly.dev/duly"
)

// settings have their environment in their tags.
type settings struct {
	partitions int `env:"DULY_PARTITIONS"`
}
