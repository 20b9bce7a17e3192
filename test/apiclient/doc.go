// Package apiclient holds the description of the HTTP API to its handler: a client that oapi-codegen makes of
// docs/reference/openapi.json calls every operation. The client is made when the test runs, and kept nowhere; what it
// needs is in this module alone.
package apiclient
