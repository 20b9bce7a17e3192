// Package rights says what each kind of user of NATS needs: the subjects that it
// publishes and subscribes to, and no more. `duly nats-permissions` prints them for
// nats-server, and a node compares them with what its own user may do.
//
// The sets follow from the code and are proven by running it: the test of that command
// runs everything with exactly these sets, without one violation.
package rights
