package ctl_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/weftnet/weft/ctl"
)

// leakChecked runs the tests and fails if goroutines are left.
type leakChecked struct{ *testing.M }

func (c leakChecked) Run() int {
	code := c.M.Run()
	// client-go's heartbeat of a connection ends at its next tick, up to five seconds after the connection.
	heartbeat := goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start")
	if err := goleak.Find(heartbeat); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"weftctl": func() {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
			code, err := checkedMain(ctx, ctl.Env{Out: os.Stdout, Err: os.Stderr}, os.Args[1:])
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 99
			}
			stop()
			os.Exit(code)
		},
	})
}
