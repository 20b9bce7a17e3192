// The program duly puts Duly itself to the work that its peers do, in one process
// like theirs: the NATS server, all roles, the agents of the steps and the callers.
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
		fmt.Fprintln(os.Stderr, "duly:", err)
		os.Exit(1)
	}
}
