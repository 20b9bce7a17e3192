package core

import (
	"errors"
	"fmt"
)

// Stops is what an error stops. Nothing wider is stopped by it.
type Stops uint8

// What an error may stop. An error that does not say stops what its store serves.
const (
	stopsStore     Stops = iota // every partition: nothing can be read or committed, or what was is not known
	StopsPartition              // one partition
	StopsTask                   // one task
)

// Fault is an error that says what it stops.
type Fault struct {
	Stops     Stops
	Partition int // of a partition or a task
	Err       error
}

// Error is that of the error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the error.
func (f *Fault) Unwrap() error { return f.Err }

// FaultOf is what an error stops.
func FaultOf(err error) Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return *f
	}
	return Fault{Err: err}
}

// StoppingStore says of an error that it stops all that the store serves.
func StoppingStore(err error) error { return &Fault{Stops: stopsStore, Err: err} }

// StoppingPartition says of an error that it stops one partition, unless it says already what it stops; nil stays nil.
func StoppingPartition(partition int, err error) error {
	if _, said := errors.AsType[*Fault](err); said || err == nil {
		return err
	}
	return &Fault{StopsPartition, partition, fmt.Errorf("partition %d: %w", partition, err)}
}

// StoppingTask says of an error that it stops one task.
func StoppingTask(partition int, err error) error { return &Fault{StopsTask, partition, err} }
