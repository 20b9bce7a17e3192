// Package drone is the drone-delivery reference application on Duly: a delivery
// is an account check, a package, a third-party transportation check, a drone
// and a delivery record, all of them or none.
//
// It has three uses. A newcomer reads it as an example: [NewWorkflow] defines
// the plan, [NewAgent] serves its steps, [Face] takes deliveries over HTTP. The
// demonstration and the benchmark drive it: [NewGenerator] makes deliveries,
// [NewServices] are backends with the published latencies and with faults on
// demand. And it is the judge: every backend keeps a book of what is in effect,
// and [Books.Check] holds the books against Duly's own store.
//
// # The backends
//
// Each service applies once per key, refuses a do whose undo came before it
// (410), lets one call per key in at a time (425), and draws latency and faults
// from a seed, by task, step, round and attempt: a call meets the same fate in
// every run, in whatever order calls are made.
//
// # What is counted
//
//   - lost: a positively answered id without an ended task
//   - doubled: more than one live effect for a task's step, an effect made after
//     its tombstone, or two `done` journal rows for one step and round
//   - half-done: processed without all five effects (two of them recorded
//     successes of checks) or with another task's drone; undone with a live one
//
// # Defects of the reference application that are beaten here
//
//	defect                                         test
//	1  202 before the broker's answer, then 404    TestPostKeepsTheCallersID, TestErrorsOfTheDoor
//	2  the client's id is overwritten              TestPostKeepsTheCallersID
//	3  no component reads a cancellation           TestDeleteStoresTheCancellation
//	   or a rescheduling                           TestPatchLosesAndDoublesNothing, TestSuccessorComesAfterRestarts
//	4  any failure is final, nothing is undone     TestAgentsUndo, TestStormIsSurvivable
//	5  dispatching twice makes two drones          TestDoTwiceIsOneEffect
//	6  a repeated create counts as a failure       TestDoTwiceIsOneEffect, TestAgentsCarryADeliveryThrough
//	8  a 429 is not tried again                    TestOneCallPerKeyAtATime (425), package agents (429)
//	9  a delivery gets another's drone             TestAgentsCarryADeliveryThrough, TestCheckFindsPlantedFaults
//	11 expedited is lost, keys are random          TestAgentsCarryADeliveryThrough, TestGenerator
//	12 the health check is constantly healthy      TestProbeAsksNATS, TestDoorsOverNATS
//
// Defects 7, 10 and 13 (prefetch and completion, poison, checkpoints of work
// that still fails) are the stream's and the scheduler's, not the application's:
// their tests stand there.
package drone
