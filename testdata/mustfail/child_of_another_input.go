// want: does not match inferred type duly.StepOf[order]

// A child takes the input of its own plan. A parent of another input says with With how to make it.
package main

import "duly.dev/duly"

type order struct{ Cents int }

type parcel struct{ Grams int }

var (
	pack  = duly.NewStep[parcel, string]("pack", "warehouse.pack")
	send  = duly.NewPlan("send", 1, pack)
	price = duly.NewCheck[order, int]("price", "shop.price")
	buy   = duly.NewPlan("order", 1, price, duly.NewChild("send", send))
)

func main() { _ = buy }
