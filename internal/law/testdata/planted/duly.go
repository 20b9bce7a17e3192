// Package duly stands for the public API.
package duly

import (
	_ "duly.dev/duly/agents"
	_ "duly.dev/duly/dev" // breach: . may not import dev
	_ "duly.dev/duly/internal/natsbus"
	_ "duly.dev/duly/internal/node"              // breach: . may not import internal/node
	_ "duly.dev/duly/scheduler"                  // breach: . may not import scheduler
	_ "duly.dev/duly/schema"                     // breach: . may not import schema
	_ "github.com/jackc/pgx/v5"                  // breach: may not link sql
	_ "github.com/nats-io/nats-server/v2/server" // breach: may not link nats-server
	_ "github.com/nats-io/nats.go/micro"
)
