// Package wire is Duly's wire without a connection.
package wire
