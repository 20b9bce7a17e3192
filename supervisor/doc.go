// Package supervisor finds tasks whose complete-by has passed and asks their
// owners to look at them.
//
// It reads and asks, and writes nothing: the owner of a partition compares the
// request with the truth and alone decides what it means. Two supervisors that
// both believe they lead, or one that asks twice, are therefore harmless; the
// lease only saves work. It knows rows and policies, never what a task does.
//
// [Supervisor] is the role itself: a synchronous handler without goroutine,
// clock or randomness of its own, one [Supervisor.Tick] at a time. [Alerter]
// tells a person about tasks in error, without drowning them. [Runner] is the
// thin, blocking shell around both. The renewal of the lease rides on the tick:
// a leader whose loop is stuck stops renewing, and another takes over.
package supervisor
