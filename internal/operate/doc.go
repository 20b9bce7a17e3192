// Package operate is what operators read and do: one read model and one set of actions behind the HTTP API, the console
// and the command line, so that all three show the same words and the same numbers.
//
// The types of this package are the API's bodies: a field's JSON name is the name an operator sees everywhere. [Reader]
// is what the state store answers, [Actions] what may be asked of one task, [Operations] what may be asked of many.
// Every change is written to the audit trail before it is carried out, with the authenticated actor.
package operate
