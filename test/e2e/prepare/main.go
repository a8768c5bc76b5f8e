// Command prepare builds or finds the programs of the end-to-end tests' cluster before the tests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftnet/weft/test/e2e/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := programs.Ensure(ctx, "pins", os.Stderr); err != nil {
		// The tests report the same and are skipped: a missing program is not an error of the project.
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	if err := programs.EnsureGuests(ctx, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: tests beside other programs of a node are skipped:", err)
	}
}
