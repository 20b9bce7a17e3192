package core

import "time"

// Weather is by how much a wait or a task may be longer than it is thought to be: the speed of machines varies by a quarter
// within a minute. A door takes a submission, and an owner begins it, only if it has that much time.
const Weather = 1.25

// needsPart is the part of the time that is left which a plan's tasks are taken to need at most, unless the plan refuses by
// itself: what was learned in an overload is longer than what they need, and must not keep it going.
const needsPart = 4

// Reading is how far the owner of a partition is with its task stream.
type Reading struct {
	Partition int
	Epoch     int64
	Cursor    uint64        // the position up to which everything is committed
	Read      int64         // submissions up to there, since the owner took the partition over
	Begun     int64         // of them those that began: not what was over, refused or known already
	Waited    time.Duration // how long the newest of them had been in the stream
}
