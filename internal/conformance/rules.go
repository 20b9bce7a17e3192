package conformance

import "slices"

// Rule is one rule of the protocol.
type Rule struct {
	ID   string `json:"id"` // its number, which never changes
	Text string `json:"text"`
}

// The numbers of the rules.
const (
	ruleOneEffect  = "P1"
	ruleSameResult = "P2"
	ruleConcurrent = "P3"
	ruleLateDo     = "P4"
	ruleUndo       = "P5"
	ruleUndoAgain  = "P6"
	ruleUndoFirst  = "P7"
	ruleUndoDoing  = "P8"
	ruleSize       = "P9"
	ruleGarbage    = "P10"
	ruleSilent     = "P11"
	ruleUnknown    = "P12"
	ruleOneAnswer  = "P13"
	ruleGroup      = "P14"
	ruleProbe      = "P15"
)

// Rules are all of them, in the order of their numbers.
var Rules = []Rule{
	{ruleOneEffect, "one effect a key, however often its do comes"},
	{ruleSameResult, "a do that comes again is answered with the first result"},
	{ruleConcurrent, "dos of a key at a time have one effect, and none is refused for good"},
	{ruleLateDo, "a do whose key was undone is refused with 410, and has no effect"},
	{ruleUndo, "an undo takes the effect back"},
	{ruleUndoAgain, "an undo that comes again succeeds"},
	{ruleUndoFirst, "an undo whose do was never seen succeeds"},
	{ruleUndoDoing, "after an undo that came while its do was at work no effect stays"},
	{ruleSize, "what is too large is answered with an error, and the agent goes on"},
	{ruleGarbage, "what is no command is refused for good, and the agent goes on"},
	{ruleSilent, "nothing is answered after the complete-by, not even an error"},
	{ruleUnknown, "members and headers that the agent does not know change nothing"},
	{ruleOneAnswer, "a message is answered once at most, at its reply subject"},
	{ruleGroup, "instances share the queue group q: each command comes to one"},
	{ruleProbe, "a probe says done, absent or in progress only where it is so"},
}

// TextOf is what a rule says; empty: there is no such rule.
func TextOf(id string) string {
	i := slices.IndexFunc(Rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return ""
	}
	return Rules[i].Text
}
