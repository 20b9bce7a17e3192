// The program river puts River, a job queue on PostgreSQL, to the work that the
// other peers and Duly do: a task of several steps is a chain of jobs, where each
// completes and inserts the next in one transaction.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"duly.dev/duly/bench/peers/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := harness.Main(ctx, spec(), os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}
