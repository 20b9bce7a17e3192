package telemetry

// Names of attributes of spans. The conventions for messaging are still in development, so all names stand here.
const (
	attrService   = "service.name"
	attrInstance  = "service.instance.id"
	attrTask      = "duly.task.id"
	attrType      = "duly.task.type"
	attrState     = "duly.task.state"
	attrPartition = "duly.partition"
	attrStep      = "duly.step.name"
	attrAgent     = "duly.agent"
	attrAttempt   = "duly.step.attempt"
	attrRound     = "duly.round"
	attrUndo      = "duly.step.undo"
	attrOutcome   = "duly.step.outcome" // kind of the journal row that ended an attempt
	attrCode      = "duly.step.code"    // of a failed attempt, as HTTP
	attrKey       = "duly.step.key"     // idempotency key of the step
)

// Names of spans: the prefix, and the type of the task or the name of the step.
const (
	spanTask      = "task "
	spanContinued = "task again "
	spanDo        = "do "
	spanUndo      = "undo "
)

// tracerName is the name of the instrumentation.
const tracerName = "duly.dev/duly"
