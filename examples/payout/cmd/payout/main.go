// The payout program runs the example on a Duly that is up.
package main

import (
	"os"

	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/payout"
)

func main() {
	os.Exit(mock.Main("payout", func(s mock.Settings) mock.Example { return payout.New(s) }))
}
