// want: not enough arguments in call to duly.Elements
// want: not enough arguments in call to duly.NewEach

// The list of an each, and how many elements it may have, are said.
package main

import "duly.dev/duly"

type order struct{ Cents int }

var (
	credit = duly.NewCheck[order, bool]("credit", "credit.check")
	buy    = duly.NewPlan("order", 1, credit)
	all    = duly.NewEach[order]("all", buy, duly.Elements("input.orders"))
	none   = duly.NewEach[order]("none", buy)
)

func main() { _, _ = all, none }
