// The program goworkflows puts go-workflows, with its PostgreSQL backend, to the
// work that the other peers and Duly do: a task is a workflow, each of its steps an
// activity.
package main

import (
	"os"

	"duly.dev/duly/bench/peers/harness"
)

func main() { os.Exit(harness.Program(spec())) }
