// Package lite is below schema and has its rights.
package lite

import (
	_ "modernc.org/sqlite"

	_ "github.com/nats-io/nats.go" // breach: may not link nats
)
