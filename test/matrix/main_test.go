// Package matrix_test connects pods with every type of interface on every type of network, and checks every view of
// each.
package matrix_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) {
	netnstest.Enter()
	// Nodes mostly wait, so more of them run than there are processors; a flag takes precedence.
	if err := flag.Set("test.parallel", "3"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	goleak.VerifyTestMain(m, programs.Keep())
}
