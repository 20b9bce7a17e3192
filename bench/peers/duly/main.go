// The program duly puts Duly itself to the work that its peers do, in one process
// like theirs: the NATS server, all roles, the agents of the steps and the callers.
package main

import (
	"os"

	"duly.dev/duly/bench/peers/harness"
)

func main() { os.Exit(harness.Program(spec())) }
