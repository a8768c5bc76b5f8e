package scripts_test

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

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

// assignment reads addr_assign_type of eth0 in the namespace at path.
func assignment(path string) (how string, err error) {
	err = netnstest.WithSysfs(path, func() error {
		text, err := os.ReadFile("/sys/class/net/eth0/addr_assign_type")
		how = strings.TrimSpace(string(text))
		return err
	})
	return how, err
}

// queuesCommand: queues NAME RX TX checks the kernel's number of queues of the sandbox's eth0.
func queuesCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		usage(ts, "queues NAME RX TX")
	}
	rx, tx, err := netnstest.CountQueues(on(ts).sandbox(ts, args[0]).path, "eth0")
	switch {
	case errors.Is(err, unix.EPERM) && !strings.Contains(os.Getenv("WEFT_REQUIRE"), "root"):
		ts.Logf("skipped: only root may mount sysfs: %v", err)
	case err != nil:
		ts.Fatalf("queues: %v", err)
	case strconv.Itoa(rx) != args[1] || strconv.Itoa(tx) != args[2]:
		ts.Fatalf("%d RX and %d TX queues, want %s and %s", rx, tx, args[1], args[2])
	}
}
