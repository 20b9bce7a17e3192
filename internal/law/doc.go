// Package law holds what must stay true of the source itself, as tests: who may
// import whom, that names on NATS are put together from the namespace, where drivers
// of databases may be named,
// that every package says what it is for, that no test waits by sleeping, that
// misuse of the public API does not compile, that each requirement, invariant, situation and mended fault has a test, and
// that the pages of docs agree with the source and stay short.
//
// The law of imports is one map, `packages` in law_test.go. A package that is not in
// it fails the tests, so a new one starts with a decision about its place. Every
// check is run against planted violations in testdata as well, because a check
// that cannot fail is no check.
//
// The package has no code outside its tests.
package law
