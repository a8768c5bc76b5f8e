// Package churn_test adds and deletes many pods and networks and compares the node with its state before.
package churn_test

import (
	"flag"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

// many is the number of pods, and of networks, that are added and deleted.
var many = flag.Int("pods", 200, "number of pods and networks that are added and deleted")

func TestMain(m *testing.M) { netnstest.Main(m) }
