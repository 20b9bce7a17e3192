// Package telemetry shows how a node does: metrics for Prometheus, spans for OpenTelemetry, and the level of the log.
//
// It counts nothing itself but requests over HTTP. Roles and adapters count as they always did, and a [Source] copies their
// counts when Prometheus asks: so a metric costs nothing while no one looks, and no role knows this package. metrics.go has every
// name of a metric, attributes.go every name of a span's attribute.
package telemetry
