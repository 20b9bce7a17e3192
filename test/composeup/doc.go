// Composeup starts compose.yaml on a real Docker engine and does to it what a
// user and an unkind day do: submissions through every door, killed servers,
// stopped nodes, cut networks, an upgrade. It counts checks and ends with the
// line "compose: N checks, M failed".
//
// The engine is the one that DOCKER_HOST names; scripts/test-compose finds or
// starts it. With -images=offline nothing is pulled: the images are made of this
// checkout's binaries, of the nats-server that go.mod pins with busybox for its
// health check, and of the machine's own PostgreSQL.
//
// It is a module of its own, so that Compose's dependencies are in no user's
// module graph.
package main
