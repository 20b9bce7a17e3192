// Package storetest is the one conformance suite of the state store. Every
// implementation of schema.Store runs all of it, so that what a scheduler relies
// on is true of each: what a commit leaves out, what it refuses, what comes back.
package storetest
