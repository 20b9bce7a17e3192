// Package dev runs everything in one process: an embedded NATS server with
// JetStream, a state store that needs no server (or a throwaway PostgreSQL), and
// all roles. It is what `duly dev` and `duly demo` stand on, and the only part
// of Duly that links nats-server.
package dev
