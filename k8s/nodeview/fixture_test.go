package nodeview_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/nodeview/nodeviewtest"
)

const (
	networks = "customnetworks.contivpp.io"
	pools    = "ippools.contivpp.io"
	ipblocks = "ipblocks.contivpp.io"
	configs  = "weftconfigs.contivpp.io"
	external = "externalinterfaces.contivpp.io"
	nodeNets = "nodenetworks.contivpp.io"
	nads     = "network-attachment-definitions.k8s.cni.cncf.io"
)

// lab is an API server with a node n1.
type lab struct{ *nodeviewtest.Lab }

func newLab(t *testing.T) *lab { return &lab{nodeviewtest.New(t)} }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
