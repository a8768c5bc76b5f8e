// Package churn_test makes and removes many pods and networks, and shows that the node is then as it was.
package churn_test

import (
	"flag"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

// many is how many pods, and how many networks, are made and removed.
var many = flag.Int("pods", 200, "how many pods and networks are made and removed")

func TestMain(m *testing.M) { netnstest.Main(m) }

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
