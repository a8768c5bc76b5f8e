package statssocket_test

import (
	"testing"

	"github.com/weftnet/weft/internal/statssocket"
)

func TestStatsSocketIsBesideTheAPISocket(t *testing.T) {
	for api, want := range map[string]string{
		"/run/weft/vswitch-api.sock": "/run/weft/vswitch-stats.sock",
		"/run/vpp/api.sock":          "/run/vpp/stats.sock",
		"/x/other":                   "/x/other.stats",
	} {
		if got := statssocket.Of(api); got != want {
			t.Errorf("%s: %s, want %s", api, got, want)
		}
	}
}
