// The travel program runs the example on a Duly that is up.
package main

import (
	"os"

	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/travel"
)

func main() {
	os.Exit(mock.Main("travel", func(s mock.Settings) mock.Example { return travel.New(s) }))
}
