// The order program runs the example on a Duly that is up.
package main

import (
	"os"

	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/order"
)

func main() { os.Exit(mock.Main("order", func(s mock.Settings) mock.Example { return order.New(s) })) }
