package wire

import (
	"encoding/json"
	"fmt"
	"strconv"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// SubjectProbe is where an agent answers whether the do of a key took effect.
func (n Names) SubjectProbe(agent string) string { return n.get().root + "probe." + agent }

// PatternProbe selects the questions to all agents.
func (n Names) PatternProbe() string { return n.get().root + "probe.>" }

// A question is the command whose outcome is not known, as [AppendCommand] makes it; complete_by and left_ms say until
// when the answer is read.

// AppendProbe appends the JSON of an agent's answer. A result is copied as it is.
func AppendProbe(dst []byte, p *core.Probe) []byte {
	dst = append(dst, `{"v":`...)
	dst = strconv.AppendInt(dst, Version, 10)
	dst = append(dst, `,"outcome":`...)
	dst = appendString(dst, string(p.Outcome))
	if p.Outcome == core.ProbeDone {
		dst = append(dst, `,"result":`...)
		dst = appendRaw(dst, p.Result)
	}
	return append(dst, '}')
}

// probeAround is how many bytes an answer may have besides its result.
const probeAround = 256

// DecodeProbe reads an answer whose result may have so many bytes. The result is a part of data; one that is not there
// is null. Errors wrap ErrUndecodable and say what is wrong: no JSON, another version, an outcome that there is not, a
// result beside an outcome that has none, one that is too large.
func DecodeProbe(data []byte, resultMax int) (core.Probe, error) {
	if most := resultMax + probeAround; len(data) > most {
		return core.Probe{}, fmt.Errorf("%w: probe: %d bytes, the limit is %d", ErrUndecodable, len(data), most)
	}
	var a struct {
		V       int             `json:"v"`
		Outcome string          `json:"outcome"`
		Result  json.RawMessage `json:"result"`
	}
	if err := decodeOf("probe", data, &a, &a.V); err != nil {
		return core.Probe{}, err
	}
	p := core.Probe{Outcome: core.ProbeOutcome(a.Outcome)}
	switch p.Outcome {
	case core.ProbeDone:
		if p.Result = a.Result; len(p.Result) == 0 {
			p.Result = null
		}
		if err := quickjson.Check("the result", p.Result); err != nil {
			return core.Probe{}, fmt.Errorf("%w: probe: %w", ErrUndecodable, err)
		}
	case core.ProbeAbsent, core.ProbeInProgress:
		if len(a.Result) > 0 && string(a.Result) != "null" {
			return core.Probe{}, fmt.Errorf("%w: probe: outcome %s has a result", ErrUndecodable, p.Outcome)
		}
	default:
		return core.Probe{}, fmt.Errorf("%w: probe: outcome %s, want %s, %s or %s", ErrUndecodable, core.QuoteShort(a.Outcome),
			core.ProbeDone, core.ProbeAbsent, core.ProbeInProgress)
	}
	if len(p.Result) > resultMax {
		return core.Probe{}, fmt.Errorf("%w: probe: the result has %d bytes, the limit is %d", ErrUndecodable, len(p.Result), resultMax)
	}
	return p, nil
}
