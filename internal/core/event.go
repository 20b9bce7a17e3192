package core

// EventKind says what happened to a task.
type EventKind uint8

// The events. The source of each is noted; Apply does not check it.
const (
	EventReply    EventKind = iota + 1 // agent: the answer to the command numbered Seq
	EventUnserved                      // bus: no agent is subscribed for the command numbered Seq
	EventWake                          // owner: a backoff or a grace is over
	EventClaim                         // owner: the agent a parked task waits for has room again, or the pause is lifted
	EventOverdue                       // supervisor: the complete_by of the row has passed
	EventCancel                        // client: end it; undo what was done
	EventUndo                          // operator: undo it, also after processed, also again after an undo gave up; with Step, that step of an undone task once more
	EventResubmit                      // operator: start again at the failed step, or from the first after an undo
	EventResolve                       // operator: a task in error was settled by hand; As says how
	EventExtend                        // operator: a later task deadline
	EventPoison                        // owner: the database refuses the task's row, or its plan is gone
	EventWentBack                      // owner: the database went back at Until; what ran before is not known
	EventServed                        // owner: the agent that a step waits for has answered another task
	EventAccept                        // operator: the failed step of a task in error counts as done, with Result
	EventEdit                          // operator: as Resubmit, with another input
	EventSignal                        // client or operator: the answer that the signal step Step waits for, or refuses with Code
	EventChild                         // owner: the child or children of the step whose command is numbered Seq have come to their end
	EventMigrate                       // operator: from now on the task is of another version of its plan
	EventProbed                        // agent: what became of the do numbered Seq, which was silent; Code is 0 or CodeAbsent
)

// Event is one thing that happened to one task.
type Event struct {
	Kind   EventKind
	At     Instant // when it was read from its socket, never before the task's newest journal row
	Rand   float64 // in [0,1): the jitter of a backoff this event may start
	Node   string  // the owner that applies the event: what locked_by becomes; empty: Actor
	Actor  string  // who raised it: a node, an agent, a person
	Reason string  // a person's words
	Type   string  // of a request: the type that the requester names; empty: it names none
	IfSeq  int64   // of a request: the newest journal row that the requester knows; 0: whatever it is

	Seq    int64   // of Reply, Unserved, Probed: journal row that issued the command
	Copy   uint32  // of Reply, Unserved: which copy of the command, as its Effect has it
	Code   int     // of Reply: 0 = success, else the Nats-Service-Error-Code
	Error  string  // of Reply, Poison: text of the failure
	Result []byte  // of Reply, Probed and Accept: JSON
	Input  []byte  // of Edit: JSON
	Step   string  // of Resubmit, Edit and Accept: the step meant; empty = the failed one; of Undo: see EventUndo
	Until  Instant // of Extend, Resubmit, Edit and Accept: the new task deadline; 0 = the plan's time from now, or its own if later; of WentBack: when
	As     State   // of Resolve: StateProcessed or StateUndone
	// WentBack is when the database went back, of a request about a task that has ended and whose journal does not note
	// it yet; 0: nothing is to be noted. What the task goes on with is noted before the request.
	WentBack Instant
	// NoTime says of a birth that what is left until its deadline is too little: nothing of it begins.
	NoTime bool
	// Full has step i when its agent has no room in its in-flight
	// window, its breaker keeps the do back, or a pause holds the step: a do that would start there parks the task instead.
	Full StepSet
	// Few has step i when its agent has room for one more do, and may have none for two: of steps of one agent
	// one begins.
	Few StepSet
	// Back is, of steps in Full, when their agent is back at the earliest: its breaker is open until then. 0, and a step
	// beyond its end: that is not known. A task that cannot wait so long is undone at once.
	Back     []Instant
	AskToken string // of Signal: the ask that it answers, see [Task.AskToken]; empty: the only one
	ByParent bool   // of Undo and Resubmit of a child: its parent's owner raises it
	Ask      Asker  // answers the plan's expressions; may be nil for a plan that has none

	Found ProbeOutcome // of Resubmit, Edit and Undo: done or absent, what a person says of the service whose key is too old; empty: nothing

	Looked Instant // when the request with Found was asked: its sender had looked by then; 0: it is not known

	Version int64 // of Migrate: of the plan
	Plan    *Plan // of Migrate: that version of the plan; nil: it is not known
}

// Asker answers the expressions of the plan of the task that the event is of. What it answers goes into the journal; a
// replay asks nothing. An expression sees the task, as it is in the middle of the event: its input, and the results of
// the steps that its own step comes after, so that to ask again has the same answer. An error's text is what the step
// fails with. It is bound to its task, because a task that is handed out here would cost each event its memory.
type Asker interface {
	When(step int) (bool, error)
	Input(step int) ([]byte, error)         // JSON
	Until(step int) (Instant, error)        // of a wait with Step.Until
	Elements(step int) ([]byte, int, error) // a compact JSON array, and how many elements it has
	Result() ([]byte, error)                // of Plan.Result, when every step is done or skipped; JSON
}
