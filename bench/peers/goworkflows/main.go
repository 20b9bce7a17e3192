// The program goworkflows puts go-workflows, with its PostgreSQL backend, to the
// work that the other peers and Duly do: a task is a workflow, each of its steps an
// activity.
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
		fmt.Fprintln(os.Stderr, "goworkflows:", err)
		os.Exit(1)
	}
}
