// Package node puts roles, adapters and configuration together: what `duly
// serve` runs, and what `duly dev` and `duly demo` run in one process.
//
// Roles know nothing of NATS or SQL; the adapters in this package translate
// between their ports and the packages bus and schema.
package node
