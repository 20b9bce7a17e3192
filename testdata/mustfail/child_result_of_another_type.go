// want: cannot use duly.NewChild("send", send) (value of type *duly.Child[parcel, string]) as *duly.Child[parcel, int] value

// The result of a child is that of its plan.
package main

import "duly.dev/duly"

type parcel struct{ Grams int }

var (
	pack = duly.NewStep[parcel, string]("pack", "warehouse.pack")
	send = duly.ResultOf(duly.NewPlan("send", 1, pack), pack)
)

func main() {
	var child *duly.Child[parcel, int] = duly.NewChild("send", send)
	_ = child
}
