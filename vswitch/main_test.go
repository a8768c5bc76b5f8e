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

// Environment variables of a dataplane process that is a standby, and of one with a memif broker.
const (
	standbyEnv = "WEFT_VSWITCH_TEST_STANDBY"
	brokerEnv  = "WEFT_VSWITCH_TEST_BROKER"
)

// brokerArgument makes this program a memif broker.
const brokerArgument = "memif-broker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == brokerArgument {
		if err := ServeMemifBroker(nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
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
	c := Config{APISocket: socket, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	c.Name = os.Getenv(standbyEnv)
	c.Standby = c.Name != ""
	if os.Getenv(brokerEnv) != "" {
		c.MemifBroker = []string{brokerArgument}
	}
	handoverTimeout = patience
	return Run(ctx, c)
}
