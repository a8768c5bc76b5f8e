package port_test

import (
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// namespace creates a namespace for taps.
func namespace(t *testing.T) string {
	t.Helper()
	netnstest.RequireTap(t)
	return netnstest.New(t)
}
