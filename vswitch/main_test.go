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

// apiSocketEnv is the environment variable with the API socket of a dataplane process.
const apiSocketEnv = "WEFT_VSWITCH_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(apiSocketEnv); socket != "" {
		if err := runDataplane(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	netnstest.Main(m)
}

// runDataplane runs a dataplane until SIGTERM.
func runDataplane(socket string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	TuneThreads(1)
	return Run(ctx, Config{APISocket: socket, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}
