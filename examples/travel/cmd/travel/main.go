// The travel program runs the example on a Duly that is up.
package main

import (
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/travel"
)

func main() { mock.Main("travel", func(s mock.Settings) mock.Example { return travel.New(s) }) }
