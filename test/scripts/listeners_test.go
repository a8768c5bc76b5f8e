package scripts_test

import (
	"fmt"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/netns"
)

// listenersCommand: listeners prints a line for each TCP port with a listener in the node's network namespace: address
// and port in the kernel's hexadecimal; "none" if there are no listeners.
func listenersCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		usage(ts, "listeners")
	}
	const listening = "0A" // TCP_LISTEN
	heard := 0
	ts.Check(netns.Do(on(ts).home, func() error {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + table)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if f := strings.Fields(line); len(f) > 3 && f[3] == listening {
					heard++
					_, _ = fmt.Fprintln(ts.Stdout(), f[1])
				}
			}
		}
		return nil
	}))
	if heard == 0 {
		_, _ = fmt.Fprintln(ts.Stdout(), "none")
	}
}
