// The program river puts River, a job queue on PostgreSQL, to the work that the
// other peers and Duly do: a task of several steps is a chain of jobs, where each
// completes and inserts the next in one transaction.
package main

import (
	"os"

	"duly.dev/duly/bench/peers/harness"
)

func main() { os.Exit(harness.Program(spec())) }
