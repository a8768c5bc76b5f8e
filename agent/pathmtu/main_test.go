package pathmtu

import (
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }
