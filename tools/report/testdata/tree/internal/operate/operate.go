package operate

type Action string

const (
	ActionOne Action = "one"
	ActionTwo Action = "two"
)

type AuditEntry struct{ Action Action }

type Trail interface{ Append(e AuditEntry) }
