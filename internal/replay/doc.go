// Package replay plays the journal of one task forwards and backwards, says at each row what was decided and why, and
// answers what would have been decided if an answer had come at another time. It needs no database and no clock: a
// [File] has all of it.
package replay
