package schema

const (
	first         = 1
	journalFormat = 2
)

const row = "id, start_at" // start_at
