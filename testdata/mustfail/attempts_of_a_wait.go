// want: cannot use duly.Attempts(3) (value of interface type duly.Option) as duly.WaitOption value
// want: cannot use duly.Parallel(3) (value of interface type duly.EachOption) as duly.ChildOption value
// want: cannot use duly.Attempts(3) (value of interface type duly.Option) as duly.SignalOption value

// A wait and a signal have no attempts, and a child is one.
package main

import "duly.dev/duly"

type order struct{ Cents int }

var (
	cool    = duly.NewWait[order]("cool", duly.For(1e9), duly.Attempts(3))
	approve = duly.NewSignal[order, bool]("approve", duly.Attempts(3))
	buy     = duly.NewPlan("order", 1, approve)
	child   = duly.NewChild("child", buy, duly.Parallel(3))
)

func main() { _, _ = cool, child }
