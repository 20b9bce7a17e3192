// Package dev starts a server in the process.
package dev

import (
	_ "duly.dev/duly/examples/drone" // breach: dev may not import examples/drone
	_ "duly.dev/duly/internal/node"
	_ "github.com/nats-io/nats-server/v2/server" // breach: it may not link nats-server
)
