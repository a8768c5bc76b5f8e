package vswitch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

// aloneOn names the API socket of a dataplane that is to run in a process of its own.
const aloneOn = "WEFT_VSWITCH_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(aloneOn); socket != "" {
		if err := runAlone(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	netnstest.Main(m)
}

// runAlone is a dataplane until SIGTERM.
func runAlone(socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	TuneThreads(1)
	return Run(ctx, Config{APISocket: socket, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}
