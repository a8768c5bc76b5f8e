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
