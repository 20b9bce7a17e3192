package core

// Task has StartAt.
type Task struct {
	StartAt int // StartAt of a comment
}
