// Package mesh tests pods of two nodes, each with an agent and a dataplane of its own: weft-vswitch, or the VPP that
// WEFT_VPP names.
package mesh

import (
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) { netnstest.Main(m, programs.Keep()) }
