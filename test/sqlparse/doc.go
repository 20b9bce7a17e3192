// Package sqlparse holds every SQL text that Duly sends to PostgreSQL or
// CockroachDB to what both take. The texts are heard on the wire, between the
// store's conformance suite and a server, as PostgreSQL and as what looks like a
// CockroachDB; and every piece of SQL in the source of package schema has to be
// among them, so that no statement escapes by not being run. Each is parsed by
// CockroachDB's own parser and by PostgreSQL's, and its tree is searched for what
// the two do not share.
//
// Parsers check syntax. That a CockroachDB runs the statements, and to what
// effect, is shown by the suite on a real one alone.
//
// It is a module of its own, and it has no code outside its tests: CockroachDB's
// parser comes under its makers' licence and is in no program that is given away.
package sqlparse
