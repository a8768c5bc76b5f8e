package podmanager

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary play a caller that is not root, see peer_test.go.
func TestMain(m *testing.M) {
	if socket := os.Getenv(strangerSocket); socket != "" {
		os.Exit(stranger(socket))
	}
	goleak.VerifyTestMain(m)
}
