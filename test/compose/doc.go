// Package compose checks the files of a deployment against the code they deploy:
// compose.yaml is loaded with the compose specification's own library,
// deploy/nats.conf with the server's own parser, the unit of systemd with systemd's own
// library, the Dockerfile by reading it.
// What they name must exist in the code: settings, flags, commands, roles, ports,
// health paths. Every check is shown to fail on a copy with one planted fault.
//
// It is a module of its own, so that the libraries it needs are in no user's
// module graph, and it has no code outside its tests.
package compose
