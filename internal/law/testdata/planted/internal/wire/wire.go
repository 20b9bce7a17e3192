// Package wire has names and encodings, and no connection.
package wire

import (
	_ "duly.dev/duly/internal/core"
	_ "duly.dev/duly/internal/natsbus" // breach: internal/wire may not import internal/natsbus
	_ "github.com/nats-io/nats.go"     // breach: may not link nats
)
