// Package drone uses the public API alone.
package drone

import (
	_ "duly.dev/duly"
	_ "duly.dev/duly/examples/drone/mock"
	_ "duly.dev/duly/internal/core" // breach: examples/drone may not import internal/core
	_ "github.com/nats-io/nats.go"
)
