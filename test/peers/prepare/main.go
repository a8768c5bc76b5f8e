// Command prepare gets the peers that tests need and that are not installed, and says which there are.
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
	// A machine without a network has to wait that long for nothing.
	timeout := flag.Duration("timeout", time.Minute, "how long getting peers may take")
	words := flag.Bool("words", false, "print the words for WEFT_REQUIRE of those that can be had")
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
