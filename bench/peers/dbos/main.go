// The program dbos puts DBOS Transact, durable workflows on PostgreSQL, to the
// work that the other peers and Duly do: a task is a workflow, each of its steps a
// step of it.
package main

import (
	"os"

	"duly.dev/duly/bench/peers/harness"
)

func main() { os.Exit(harness.Program(spec())) }
