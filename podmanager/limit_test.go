package podmanager

import (
	"testing"

	"github.com/weftnet/weft/pod"
)

// A pod must not run without the limit that its annotations state. Kubernetes limits the main interface: that of
// another plugin is not Weft's to limit.
func TestAddIsRefusedIfItsMainInterfaceHasABandwidthLimit(t *testing.T) {
	limited := map[string]string{"kubernetes.io/ingress-bandwidth": "20M", "kubernetes.io/other": "x"}
	for name, tt := range map[string]struct {
		mode, ifName string
		annotations  map[string]string
		isRefused    bool
	}{
		"main interface":                  {pod.ModePrimary, "eth0", limited, true},
		"main interface of an old plugin": {"", "eth0", limited, true},
		"another limit": {
			pod.ModePrimary, "eth0", map[string]string{"kubernetes.io/egress-bandwidth": "1M"}, true,
		},
		"an empty limit": {
			pod.ModePrimary, "eth0", map[string]string{"kubernetes.io/egress-bandwidth": " "}, false,
		},
		"no limit": {
			pod.ModePrimary, "eth0", map[string]string{"kubernetes.io/other": "x"}, false,
		},
		"another interface":     {pod.ModePrimary, "net1", limited, false},
		"behind another plugin": {pod.ModeChained, "eth0", limited, false},
		"a delegate":            {pod.ModeDelegate, "net1", limited, false},
		"addresses only":        {pod.ModeIPAM, "eth0", limited, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			req := addOf("c1", "/run/netns/a")
			req.Mode = tt.mode
			req.Attachment.IfName = tt.ifName
			req.Annotations = tt.annotations
			req.HasAnnotations = true
			if !tt.isRefused {
				reply, err := n.Add(t.Context(), req)
				if err != nil || reply.GetError() != nil {
					t.Errorf("refused: %v, %v", err, reply.GetError())
				}
				return
			}
			wantError(t, n.refusedAdd(t, req), pod.CodeInvalidAnnotation,
				"-bandwidth: Weft does not limit bandwidth: remove the annotation")
			if left := n.Attachments(); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}
