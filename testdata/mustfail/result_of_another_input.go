// want: does not implement duly.Earlier[order] (wrong type for method takes)

// A result is read in a step of a task with the same input.
package main

import (
	"context"

	"duly.dev/duly"
)

type order struct{ Cents int }

type parcel struct{ Grams int }

var credit = duly.NewCheck[order, bool]("credit", "credit.check")

func pack(_ context.Context, call duly.Call[parcel]) (string, error) {
	if ok, err := credit.Result(call); err != nil || !ok {
		return "", err
	}
	return "box", nil
}

func main() { _ = pack }
