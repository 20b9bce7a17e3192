// Package conformance plays against an agent that runs, in whatever language, and says which rules of the protocol it
// holds: docs/reference/protocol.md has them, P1 to P15, and [Rules] in short.
//
// [Run] speaks as a scheduler does: one command a message, to the agent's own subjects, with the answers at a subject of
// its own. It sees an agent by its answers alone. Two things show more: the agent's answers to probes, where it gives any,
// and [Options].Effects, which counts the effects that stand for a key. A finding says what it rests on.
//
// A rule that is broken can make others look broken: an agent that makes an effect twice when a do comes again does so
// when two come at a time. Such a rule is not judged, and the finding names the one that stands in the way.
//
// The keys of a run are its own, so that it can be told from other work, and what a run did it undoes at its end. The
// commands are work like any other to the agent all the same: they are not for an agent whose effects cannot be taken back.
package conformance
