// Package dulytest tries handlers out against what they will meet: commands
// that come twice, undos that come without a result or before their do, and dos
// that come after their undo.
//
// It needs neither a server nor a connection: it plays commands against the
// agent itself.
package dulytest
