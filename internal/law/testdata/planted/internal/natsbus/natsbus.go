// Package natsbus has connections.
package natsbus

import _ "github.com/nats-io/nats.go/jetstream"

const subject = "duly.do." // breach: is a name of the default namespace
