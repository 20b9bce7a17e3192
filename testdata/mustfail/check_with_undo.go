// want: too many arguments in call to credit.Serve
// want: (value of func type duly.UndoOption) as duly.CheckOption value

// A check leaves nothing behind: there is nothing to undo, and no option for it.
package main

import (
	"context"
	"time"

	"duly.dev/duly"
)

type order struct{ Cents int }

var credit = duly.NewCheck[order, bool]("credit", "credit.check", duly.UndoCompleteBy(time.Second))

func ask(context.Context, duly.Call[order]) (bool, error) { return true, nil }

func forget(context.Context, duly.Undo[order, bool]) error { return nil }

func main() {
	agent, err := duly.NewAgent(nil)
	if err != nil {
		panic(err)
	}
	if err := credit.Serve(agent, ask, forget); err != nil {
		panic(err)
	}
}
