package scripts_test

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// listenersCommand: listeners prints a line for each TCP port with a listener in the node's network namespace: address and
// port in the kernel's hexadecimal; "none" if there are no listeners.
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

// assigned is NET_ADDR_SET, the kernel's type of a MAC that user space set; udev does not change such a MAC.
const assigned = "3" // NET_ADDR_SET

// ownmacCommand: ownmac NAME checks that user space set the MAC of the sandbox's eth0.
func ownmacCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		usage(ts, "ownmac NAME")
	}
	how, err := assignment(on(ts).sandbox(ts, args[0]).path)
	switch {
	case errors.Is(err, unix.EPERM) && !strings.Contains(os.Getenv("WEFT_REQUIRE"), "root"):
		ts.Logf("skipped: only root may mount sysfs: %v", err)
	case err != nil:
		ts.Fatalf("ownmac: %v", err)
	case how != assigned:
		ts.Fatalf("the MAC's addr_assign_type is %s, not %s", how, assigned)
	}
}

// assignment reads addr_assign_type of eth0 in a new sysfs mount, because the existing one shows another namespace's links.
func assignment(path string) (how string, err error) {
	err = netns.Do(path, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("new mounts: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("private mounts: %w", err)
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount sysfs: %w", err)
		}
		text, err := os.ReadFile("/sys/class/net/eth0/addr_assign_type")
		how = strings.TrimSpace(string(text))
		return err
	})
	return how, err
}
