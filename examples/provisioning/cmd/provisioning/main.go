// The provisioning program runs the example on a Duly that is up.
package main

import (
	"os"

	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/provisioning"
)

func main() {
	os.Exit(mock.Main("provisioning", func(s mock.Settings) mock.Example { return provisioning.New(s) }))
}
