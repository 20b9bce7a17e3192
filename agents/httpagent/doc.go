// Package httpagent makes agents of HTTP services by configuration: a file says which request does, undoes and probes a
// step, and what the answers mean. `duly serve --roles agents --agents FILE` is this package; a program of its own calls
// [Load] and [Agents.Run].
//
// The file is YAML or JSON: services, each with its address, secrets and limits, and agents, each with its steps. Path,
// query, headers and body of a request, and the result of a step, are made by expressions in CEL, which are compiled when
// the file is read. docs/guide/http-agent.md has every member, docs/decisions/035-http-agent.md the reasons.
//
// A command becomes an answer as follows; complete-by, limits and drain are those of package agents.
//
//	the service                              the do                         the undo
//	answers 2xx                              done                           undone
//	answers 410                              410, final                     undone
//	answers 408, 425, 429 or 5xx             tried again by that code       tried again by that code
//	answers another 4xx                      final by that code             500, tried again
//	answers 1xx, 3xx, or redirects elsewhere 502, tried again               502, tried again
//	answers what is too long or no JSON      512, failed for good           (the answer is not read)
//	cannot be reached, or breaks off         502, tried again               502, tried again
//	has an address that may not be dialled   503, no attempt                503, no attempt
//	has an open breaker here                 503, no attempt                503, no attempt
//	is called by too many here               429, no attempt                429, no attempt
//	has not answered by the complete-by      nothing                        nothing
//
// The file can say otherwise of a status.
package httpagent
