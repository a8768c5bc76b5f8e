// Command prepare fetches missing peers of the tests and prints the available ones.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/weftnet/weft/test/peers"
)

func main() {
	// A machine without a network waits until the timeout.
	timeout := flag.Duration("timeout", time.Minute, "timeout of fetching")
	words := flag.Bool("words", false, "print the available peers as words for WEFT_REQUIRE")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	peers.Fetch(ctx, os.Stderr)
	if *words {
		fmt.Fprintln(os.Stdout, strings.Join(peers.Found(), ","))
	}
}
