package mesh

import (
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) { netnstest.Main(m, programs.Keep()) }
