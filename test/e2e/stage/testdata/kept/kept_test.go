// Package kept_test is a test for package stage: it prints how to enter a cluster and keeps running.
package kept_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weftnet/weft/test/e2e/stage"
)

func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Fprint(os.Stderr, "buffered\n")
	fmt.Fprint(stage.Unbuffered(), stage.Kept{PID: "4711", Kubeconfig: "/k/admin.conf", Kubectl: "/p/kubectl", Timeout: "25m0s"})
	for tick := time.Tick(10 * time.Millisecond); ; <-tick { // until the test has seen it
		if _, err := os.Stat(os.Getenv("WEFT_E2E_SEEN")); err == nil {
			os.Exit(code)
		}
	}
}

func TestNothing(*testing.T) {}
