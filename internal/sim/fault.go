package sim

// Fault is one kind of thing that goes wrong.
type Fault int

// The faults. Those without a probability in the table below follow from others
// and are only counted.
const (
	NetworkSlow     Fault = iota // a message takes longer than any time-out
	CommandLost                  //
	CommandDoubled               // by a bridge; only where the services keep tombstones
	CommandUnserved              // the server says that no agent listens
	ReplyLost
	ReplyDoubled
	ReplyForeign // a number or seq that was never given, or that of an older command
	ReplyGarbage // cannot be decoded: the bus makes it a failed attempt
	ProbeLost    // a question what became of a do, or its answer

	ReadFails
	ReadSlow
	CommitFails
	CommitSlow       // the world goes on meanwhile
	CommitAnswerLost // the store sends the batch again
	CommitCutOff     // committed, and the caller hears of a failure
	TakeoverAtCommit // a successor comes between commit and publish
	TakeoverFails    // the epoch is raised, the answer lost
	ZombieCommit     // a commit that began before a takeover is decided after it
	RowRefused
	ShapeRefused // even the bare row: a dead letter
	SQLRestored  // from an older snapshot, behind the streams
	SQLWentBack  // to a standby that is behind, while everything else lives on
	EvidenceLost // of a commit, outside SQL
	FormerOwner  // wakes in an SQL that went back to when it was the owner
	DumpRestored // from any time before, while nodes and network live on
	DatabaseRefuses
	DatabaseReadOnly // an old primary: reads go on
	Purged

	NodeCrash  // between any two effects
	NodeFreeze // stands still and wakes with its old mail
	NodeRestart
	PartitionMoved // a node sees some of the live nodes only
	Released       // in order, after a drain
	TwoOwners      // a successor takes over while the owner lives and believes
	LeasesLost
	BucketLost  // of all evidence
	NameTaken   // two nodes have one name
	LostHeard   // a former owner hears at once that its reader is gone
	PlansReread // the news of changed plans

	SupervisorCrash
	SupervisorFreeze
	LeaseFails // of the supervisor
	LeaseWrong // it leads though another does, or does not though it should
	TwoLeaders
	AskFails // not stored
	AskAnswerLost

	AskedTwice        // by an operator, or a face that got no answer
	AskedAtAnotherRow // about a task that has moved on
	AskedOfMany       // tasks of a partition, by number

	ClockSkew
	ClockStep  // a clock jumps, within the bound
	ClockWrong // of an agent or a supervisor, by a minute and a half

	IngestCrash
	IngestFull  // 429: its own limits
	BacklogFull // 429: the readers are behind
	StreamDown
	StreamFull
	StreamSilent
	StreamAnswerLost // stored, and no node knows
	StreamLost       // with SQL intact, and all nodes are started again
	StreamsMade      // lost and made again while the nodes live
	ControlLost      // that one stream, while the nodes live
	StreamShorter    // a volume of before, or a power cut
	StreamGrown      // past the cursor again, when its partition is taken over
	StreamTrimmed    // of what every cursor has passed
	StreamsFull      // for a while
	NATSEmpty        // streams and buckets are new
	SecondInstallation
	Redelivery  // one message again
	Reread      // from the committed cursor
	Undecodable // a message that is no message
	UnknownPlan // published to the stream
	PastIngest  // not a fault: the other way in
	OtherInput  // the id again with another input

	EventsDown // for a while
	PublishFails
	PublishAnswerLost
	RefuseFails

	AgentCrashBefore // the effect
	AgentCrashDuring // the effect comes later, from the remote call it made
	AgentCrashAfter
	AgentsDown  // none listens for a while
	AgentsAway  // no agent listens for long
	AgentsFull  // they answer 429 for long
	UndoBroken  // the undo of one step fails for long
	AgentStops  // while it drains it answers 503
	AgentsFail  // every do of one step fails for long
	AgentBusy   // 429
	AgentError  // without an effect
	AgentUnsure // an error after the effect
	AgentHangs  // until its time is over, and takes effect late
	AgentDeaf   // ignores its context: at work past its time
	AgentRefuses
	UndoOfRunning // cancelled while its do is at work
	WindowFull    // parked: an agent's window
	InFlightFull  // enough is in flight in a partition, or a node
	Paused        // not a fault: operators pause steps and lift that
	Limited       // not a fault: agents have limits
	LimitReached
	Keyed // not a fault: a limit has keys
	KeyReached
	BreakerOpened // follows from calls that fail
	BreakerGaveUp // a task that could not wait
	Pinned        // nor that: they want partitions elsewhere

	BothRestored // SQL and streams, from copies of different times; drawn apart
	AgentFails   // for good, after the effect; some of those that are unsure

	TransportRepeats // a request, between an agent and its service, while its time lasts; drawn by the books

	faultCount
)

// kinds gives every fault its name and how likely it is each time it could be.
var kinds = [faultCount]struct {
	name string
	p    float64
}{
	NetworkSlow: {"network slow", 0.03}, CommandLost: {"command lost", 0.04}, CommandDoubled: {"command doubled", 0.15},
	CommandUnserved: {"command unserved", 0.04}, ReplyLost: {"reply lost", 0.04}, ReplyDoubled: {"reply doubled", 0.05},
	ReplyForeign: {"reply foreign", 0.02}, ReplyGarbage: {"reply garbage", 0.02}, ProbeLost: {"probe lost", 0.15},

	ReadFails: {"read fails", 0.01}, ReadSlow: {"read slow", 0.01}, CommitFails: {"commit fails", 0.01},
	CommitSlow: {"commit slow", 0.04}, CommitAnswerLost: {"commit answer lost", 0.03}, CommitCutOff: {"commit cut off", 0.01},
	TakeoverAtCommit: {"takeover at commit", 0.02}, TakeoverFails: {"takeover fails", 0.02}, ZombieCommit: {name: "zombie commit"},
	RowRefused: {name: "row refused"}, ShapeRefused: {name: "bare row refused"}, SQLRestored: {"SQL restored", 0.15},
	SQLWentBack: {"SQL went back", 0.3}, DumpRestored: {"dump restored", 0.1},
	DatabaseRefuses: {"database refuses all", 0.1}, DatabaseReadOnly: {"database read-only", 0.1}, EvidenceLost: {"evidence lost", 0.05}, FormerOwner: {name: "former owner"}, Purged: {name: "purged"},

	NodeCrash: {"node crash", 0.0015}, NodeFreeze: {"node freeze", 0.0015}, NodeRestart: {"node restart", 0.005},
	PartitionMoved: {"partition moved", 0.01}, Released: {name: "released"}, TwoOwners: {name: "two owners"}, LeasesLost: {"leases lost", 0.2},
	BucketLost: {"bucket lost", 0.1}, NameTaken: {"name taken", 0.1},
	LostHeard: {"lost heard", 0.3}, PlansReread: {"plans reread", 0.1},

	SupervisorCrash: {"supervisor crash", 0.01}, SupervisorFreeze: {"supervisor freeze", 0.01}, LeaseFails: {"lease fails", 0.1},
	LeaseWrong: {"lease wrong", 0.2}, TwoLeaders: {name: "two leaders"}, AskFails: {"ask fails", 0.05}, AskAnswerLost: {"ask answer lost", 0.05},
	AskedTwice: {"asked twice", 0.3}, AskedAtAnotherRow: {"asked at another row", 0.15}, AskedOfMany: {name: "asked of many"},

	ClockSkew: {"clock skew", 0.7}, ClockStep: {"clock step", 0.3}, ClockWrong: {"clock wrong", 0.15},

	IngestCrash: {"ingest crash", 0.02}, IngestFull: {name: "ingest full"}, BacklogFull: {name: "backlog full"},
	StreamDown: {"stream down", 0.05}, StreamFull: {"stream full", 0.03}, StreamSilent: {"stream silent", 0.03},
	StreamAnswerLost: {"stream answer lost", 0.05}, StreamLost: {"stream lost", 0.1}, StreamsMade: {"streams made again", 0.1},
	ControlLost: {"control stream lost", 0.1}, StreamShorter: {"stream shorter", 0.2}, StreamGrown: {name: "stream shorter and grown"},
	StreamTrimmed: {"stream trimmed", 0.01}, StreamsFull: {"streams full", 0.1}, NATSEmpty: {"NATS empty", 0.05},
	SecondInstallation: {"second installation", 0.1}, Redelivery: {"redelivery", 0.05},
	Reread: {"reread", 0.05}, Undecodable: {"undecodable", 0.02}, UnknownPlan: {"unknown plan", 0.03},
	PastIngest: {"past ingest", 0.15}, OtherInput: {"other input", 0.1},

	EventsDown: {"events down", 0.3}, PublishFails: {"publish fails", 0.1}, PublishAnswerLost: {"publish answer lost", 0.1}, RefuseFails: {"refuse fails", 0.1},

	AgentCrashBefore: {"agent crash before", 0.01}, AgentCrashDuring: {"agent crash during", 0.015}, AgentCrashAfter: {"agent crash after", 0.015},
	AgentsDown: {name: "agents down"}, AgentsAway: {"agents away", 0.3}, AgentsFull: {"agents full", 0.3}, UndoBroken: {"undo broken", 0.3}, AgentsFail: {"agents fail", 0.4}, AgentStops: {"agent stops", 0.03}, AgentBusy: {"agent busy", 0.03}, AgentError: {"agent error", 0.05},
	AgentUnsure: {"agent unsure", 0.05}, AgentHangs: {"agent hangs", 0.04}, AgentDeaf: {"agent deaf", 0.03}, AgentRefuses: {"agent refuses", 0.03},
	UndoOfRunning: {name: "undo of running"}, WindowFull: {name: "window full"}, InFlightFull: {name: "in flight full"},
	Limited: {"limited", 0.5}, LimitReached: {name: "limit reached"}, Keyed: {"limit with keys", 0.5}, KeyReached: {name: "limit of a key reached"},
	BreakerOpened: {name: "breaker opened"}, BreakerGaveUp: {name: "breaker gave up"},
	Paused: {"paused", 0.4}, Pinned: {"pinned", 0.3},
	BothRestored: {"both restored", 0.05}, AgentFails: {name: "agent fails for good"}, TransportRepeats: {"transport repeats", 0.1},
}

// String is the fault's name.
func (f Fault) String() string { return kinds[f].name }

// Faults is how often each fault has happened, by name.
func (w *World) Faults() map[string]int {
	all := make(map[string]int, faultCount)
	for f, n := range w.happened {
		all[kinds[f].name] = n
	}
	return all
}

// drawOdds lets worlds differ: in each some faults are rarer, some more likely
// and some do not happen at all, so that they do not always hide one another. The last faults are drawn elsewhere.
func (w *World) drawOdds() {
	factors := [...]float64{0, 0.5, 1, 1, 1, 2}
	for f := range w.odds[:BothRestored] {
		w.odds[f] = kinds[f].p * factors[w.rand.IntN(len(factors))]
	}
	if w.cfg.Operators {
		w.odds[SQLWentBack], w.odds[AgentRefuses] = 1, 0.2 // a refusal is what they are asked about
	}
}

// fault draws whether a fault happens now; in the calm none does.
func (w *World) fault(f Fault) bool {
	if !w.storm || w.odds[f] == 0 || w.rand.Float64() >= w.odds[f] {
		return false
	}
	w.happened[f]++
	return true
}

// note counts a fault that follows from others.
func (w *World) note(f Fault) { w.happened[f]++ }
