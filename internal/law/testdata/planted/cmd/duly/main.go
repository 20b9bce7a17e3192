// Duly is a program: any sentence will do.
package main

import (
	_ "duly.dev/duly/dev"
	_ "duly.dev/duly/examples/drone"
	_ "duly.dev/duly/ingest"                     // breach: cmd/duly may not import ingest
	_ "github.com/nats-io/nats-server/v2/server" // breach: may not link nats-server
)
