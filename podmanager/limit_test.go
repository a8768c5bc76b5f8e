package podmanager

import (
	"testing"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// The limits of the runtime reach the event. Weft cannot limit an interface of another plugin.
func TestCapabilityBandwidthIsParsed(t *testing.T) {
	for name, tt := range map[string]struct{ mode, bandwidth, err string }{
		"main interface":        {pod.ModePrimary, `{"ingressRate": 1000000}`, ""},
		"a delegate":            {pod.ModeDelegate, `{"ingressRate": 1000000}`, ""},
		"behind another plugin": {pod.ModeChained, `{"ingressRate": 1000000}`, "put the plugin bandwidth behind that one"},
		"no limit behind it":    {pod.ModeChained, `{"ingressRate": 0}`, ""},
		"invalid":               {pod.ModePrimary, `{"ingressRate": 1}`, "capability bandwidth: ingressRate: expected 1k"},
	} {
		r, err := requested(&weftv1.AddRequest{Mode: tt.mode, Bandwidth: tt.bandwidth})
		switch {
		case tt.err != "":
			wantError(t, replyError(err, nil), pod.CodeInvalidConfig, tt.err)
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.mode != pod.ModeChained && r.Limits.Ingress.Kilobits != 1000:
			t.Errorf("%s: %+v", name, r.Limits)
		}
	}
}
