// Package api is what clients and operators ask of Duly, under every face: HTTP here,
// requests over NATS through the same types. It stands on ports that the wiring fills:
// [Submitter] takes submissions, [Reader] reads the state store, [Controls] stores requests
// about tasks.
//
//	New(Config, Submitter, Reader, *Requests, *slog.Logger)   the HTTP handler of /v1
//	NewRequests(RequestsConfig, TaskReader, Controls, *slog.Logger)   cancel, undo, resubmit, resolve, extend
//	NewActions(*Requests)                                     the same with edit and accept, by operators
//	EncodeTask, EncodePage                                    the JSON of a task, the same everywhere
//
// Every refusal is an [ingest.Refusal]: a code as HTTP's, a cause by number, and a text
// that names the field, the value and the limit.
package api
