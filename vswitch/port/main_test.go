package port_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// requireTaps skips the test where taps cannot be made; it fails it if namespaces are required, which come to nothing then.
func requireTaps(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
	case strings.Contains(os.Getenv("WEFT_REQUIRE"), "netns"):
		t.Fatalf("taps are required (WEFT_REQUIRE) and cannot be made: %v", err)
	default:
		t.Skipf("needs taps: %v", err)
	}
}

// namespace makes one for taps.
func namespace(t *testing.T) string {
	t.Helper()
	requireTaps(t)
	return netnstest.New(t)
}
