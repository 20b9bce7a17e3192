// Package quickjson is the one check of payloads, for every door and every answer of an agent. It checks JSON as
// encoding/json does, in less time: with quick steps that is a good part of what a task costs. The library behind that
// decodes nothing: it fills a few Go types otherwise than encoding/json.
package quickjson

import (
	stdjson "encoding/json"

	"github.com/segmentio/encoding/json"
)

// depthMax is how deep encoding/json lets values nest; text that is no longer
// than that cannot go deeper.
const depthMax = 10_000

// valid reports whether data is one JSON value that encoding/json takes.
func valid(data []byte) bool {
	if len(data) > depthMax {
		return stdjson.Valid(data)
	}
	return json.Valid(data)
}
