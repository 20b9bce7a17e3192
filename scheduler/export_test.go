package scheduler

// OpenGate lets a partition's tasks in that a test has adopted by the shard.
func (b *Inbox) OpenGate(partition, room int) { b.openGate(partition, room) }
