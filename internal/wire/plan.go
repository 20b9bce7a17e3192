package wire

import (
	"encoding/json"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/planform"
)

// EncodePlan is [planform.Encode].
func EncodePlan(p *core.Plan) ([]byte, error) { return planform.Encode(p) }

// DecodePlan is [planform.Decode].
func DecodePlan(data []byte) (core.Plan, error) { return planform.Decode(data) }

// PlanAnswer is the answer to duly.plans.apply.
type PlanAnswer struct {
	Name    string    `json:"name,omitempty"`
	Version int64     `json:"version,omitempty"`
	Stored  bool      `json:"stored"` // now or before, with the same content
	Error   *APIError `json:"error,omitempty"`

	Callers json.RawMessage `json:"callers,omitempty"` // []versions.Caller: the steps whose next children are of the version
}

// DecodePlanAnswer reads the answer to duly.plans.apply; the error of a refused
// plan is an *APIError.
func DecodePlanAnswer(data []byte) (PlanAnswer, error) {
	var a PlanAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("%w: answer about a plan: %w", ErrUndecodable, err)
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}
