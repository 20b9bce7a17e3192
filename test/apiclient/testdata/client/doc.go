// Package client is where the generated client is laid over; it has nothing of its own.
package client
