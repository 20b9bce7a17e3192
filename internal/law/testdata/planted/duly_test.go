package duly_test

import (
	_ "duly.dev/duly/dev"
	_ "github.com/nats-io/nats-server/v2/server"
)

const subject = "duly.do.a"
