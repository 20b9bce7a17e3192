// Package observe holds what Duly ships for watching it to what there is: the dashboard and the alert rules name only
// metrics of a node, in expressions that Prometheus's own parser takes, and webhooks are what the libraries of their
// receivers take. It is a module of its own, because those parsers and libraries are large.
package observe
