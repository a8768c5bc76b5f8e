package controller

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
)

// overview is the objects of all nodes that the controller works on. They are shared and must not be changed.
type overview struct {
	*informer.Group
	changed chan struct{} // holds a token if an object may have changed since the last read

	networks  *informer.Informer[*v1.CustomNetwork]
	pools     *informer.Informer[*v1.IPPool]
	blocks    *informer.Informer[*v1.IPBlock]
	nodes     *informer.Informer[*v1.NodeNetwork]
	externals *informer.Informer[*v1.ExternalInterface]
	machines  *informer.Informer[*corev1.Node] // nil: taints are not removed
}

// newOverview makes an overview that knows nothing yet, with Nodes if taints are removed. It sends nothing before Run.
func newOverview(client *client.Client, taints bool, log *slog.Logger) *overview {
	o := &overview{Group: informer.NewGroup(log), changed: make(chan struct{}, 1)}
	poke := func(string) {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	o.networks = informer.Add(o.Group, "custom networks", client.Networks(), informer.Options[*v1.CustomNetwork]{Changed: poke})
	o.pools = informer.Add(o.Group, "pools", client.Pools(), informer.Options[*v1.IPPool]{Changed: poke})
	o.blocks = informer.Add(o.Group, "blocks", client.Blocks(), informer.Options[*v1.IPBlock]{Changed: poke})
	o.nodes = informer.Add(o.Group, "node networks", client.NodeNetworks(), informer.Options[*v1.NodeNetwork]{Changed: poke})
	o.externals = informer.Add(o.Group, "external interfaces", client.Externals(), informer.Options[*v1.ExternalInterface]{Changed: poke})
	if taints {
		o.machines = informer.Add(o.Group, "nodes", client.Nodes(), informer.Options[*corev1.Node]{Changed: func(name string) {
			if n, exists := o.machines.One(name); exists && isTainted(n) { // other Nodes change all the time
				poke(name)
			}
		}})
	}
	return o
}
