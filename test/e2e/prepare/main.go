// Command prepare builds or finds the programs of the end-to-end tests' cluster, ahead of the tests, and says whether there
// are all.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftnet/weft/test/e2e/programs"
)

func main() {
	words := flag.Bool("words", false, "print the word for WEFT_REQUIRE if all can be had")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := programs.Ensure(ctx, "pins", os.Stderr); err != nil {
		// The tests say so once more, and skip: what is missing here is no fault of the project.
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return
	}
	if *words {
		fmt.Fprintln(os.Stdout, "e2e")
	}
}
