package schema

const (
	first         = 1
	JournalFormat = 2
)

const row = "id, start_at" // start_at
