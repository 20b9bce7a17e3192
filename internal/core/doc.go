// Package core decides what happens to a task.
//
// A task is a list of steps that succeeds as a whole by its deadline or is
// undone. Everything that happens to it is an [Event]; [Apply] is the one
// function that decides what an event means. It changes the [Task] in memory
// and hands back an [Outcome]: the journal [Record] that makes the change
// durable, and the [Effect] values that may leave the process once that record
// is committed. It sends nothing, stores nothing, and asks neither a clock nor
// a random source: time and chance arrive inside the event.
//
// # Decide, then apply
//
// A record is sufficient to repeat the change it describes. Apply builds the
// record and applies it to the task with the same functions that [Replay] uses
// when a new owner rebuilds a task from its journal, so the live state and the
// replayed state cannot drift apart.
//
// # The life of a task
//
//	pending ─▶ processing ─▶ processed
//	   ▲  └──────┤  ├──────▶ error      (operator action required)
//	   └─ parked ┘  └─▶ undoing ─▶ undone
//	                        └────▶ error
//
// # The life of a step
//
//	skipped (its condition is false, or it is optional and failed)
//	   ▲
//	waiting ─▶ running ─▶ done ─▶ undoing ─▶ undone
//	   ▲         │ └────▶ failed ──┘ (when it may have left an effect)
//	   └─────────┘ another attempt, after a backoff
//
// A reply counts once: it names the journal row that issued its command, and
// only the command now out under that number can be answered, before its
// complete-by. One that comes later ends no attempt of a do. Where it tells what was not known of the step's effect, it is
// kept, and may end the undo of the step: late.go. Everything else is [ErrStale].
//
// # Why a task is undone
//
// A step failed and its policy says so, or it was refused: failing. There is no time for another attempt: retry; for the
// step's least time: tryBegin; until its agent is back: giveUpWaiting (breaker.go); for anything, at the deadline: expire. A
// step that may have an effect is no longer wanted: wanted. Its condition or input cannot be computed: failBegin. A client,
// an operator or its parent task asked, by a cancel or an undo: undo. Its plan is unknown or cannot be read: undoPlanless,
// undoUnread (unread.go). It was cancelled before it was submitted: [BirthCancelled]. [Task.Sentence] tells it.
//
// # Where to read
//
// apply.go and decision.go are the frame: what happens on every event; forward.go says which steps begin. birth.go,
// do.go, signal.go, undo.go, wait.go, await.go, operator.go, wentback.go and planless.go hold the
// events, one method each;
// due.go says what comes next and when; transition.go is what a journal row means;
// replay.go is what a new owner does; sentence.go tells a person why a task is where it is. testdata/cells.txt shows every event in
// every situation, testdata/scripts whole lives of tasks.
//
// The package also holds the vocabulary that the roles and the adapters share:
// [Submission], [Command], [Reply], [Batch]. internal/law lists what it may import.
package core
