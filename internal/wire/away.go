package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// Bounds of what one node says of agents that are away.
const (
	awayAgentsMax = 64
	AwayStepsMax  = 16 // of one agent
)

// SubjectAway is where every scheduler answers what it has in flight that waits for agents which are not there.
func (n Names) SubjectAway() string { return n.get().root + "nodes.away" }

// AwayReport is one scheduler's answer.
type AwayReport struct {
	V      int         `json:"v"`
	Node   string      `json:"node"`
	Agents []AwayAgent `json:"agents"`
	More   bool        `json:"more,omitempty"` // there are others, beyond awayAgentsMax
}

// AwayAgent is an agent of which no instance takes the commands of some steps.
type AwayAgent struct {
	Agent string     `json:"agent"`
	Since time.Time  `json:"since"` // when the node has seen that first
	Tasks int64      `json:"tasks"` // in flight there, that wait for it
	First time.Time  `json:"first"` // the earliest deadline of these
	Steps []AwayStep `json:"steps"` // of these, AwayStepsMax at most
}

// AwayStep is a step of a plan that waits for it.
type AwayStep struct {
	Type  string `json:"type"`
	Step  string `json:"step"`
	Tasks int64  `json:"tasks"`
	// Unable: instances are there, and have answered that they do not serve the step.
	Unable bool `json:"unable,omitempty"`
}

// EncodeAway makes the JSON of an answer, within the bounds.
func EncodeAway(r AwayReport) ([]byte, error) {
	r.V = Version
	r.Agents, r.More = r.Agents[:min(len(r.Agents), awayAgentsMax)], r.More || len(r.Agents) > awayAgentsMax
	for i := range r.Agents {
		a := &r.Agents[i]
		a.Steps = a.Steps[:min(len(a.Steps), AwayStepsMax)]
	}
	data, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("agents that are away: %w", err)
	}
	return data, nil
}

// DecodeAway reads an answer. Errors wrap ErrUndecodable.
func DecodeAway(data []byte) (AwayReport, error) {
	var r AwayReport
	if err := decodeOf("agents that are away", data, &r, &r.V); err != nil {
		return r, err
	}
	if r.Node == "" || len(r.Agents) > awayAgentsMax {
		return r, fmt.Errorf("%w: agents that are away: %d of node %s, the limit is %d", ErrUndecodable, len(r.Agents), Short(r.Node), awayAgentsMax)
	}
	return r, nil
}
