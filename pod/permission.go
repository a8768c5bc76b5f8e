package pod

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
)

// maxPermitted is the maximum number of addresses, and of virtual routers, of all permissions of a network: one pod may
// have all of them, and each pair of a MAC and a prefix is a rule of the dataplane.
const maxPermitted = 32

// Permission lets the pods that the cluster selects by their labels use what moves between pods of a network, without a
// request.
type Permission struct {
	Moving Moving `json:"moving"`
	Pods   []ID   `json:"pods,omitempty"` // the pods of this node that are selected now
}

// PermittedTo returns what the permissions of the network let a pod use.
func (n *Network) PermittedTo(id ID) (m Moving) {
	if id.IsZero() {
		return m
	}
	for _, p := range n.Permissions {
		if slices.ContainsFunc(p.Pods, id.isSame) {
			m = m.With(p.Moving)
		}
	}
	return m
}

// isSame reports whether both are one pod. A runtime may not say the UID.
func (id ID) isSame(o ID) bool {
	isNamed := id.Namespace == o.Namespace && id.Name == o.Name
	return isNamed && (id.UID == "" || o.UID == "" || id.UID == o.UID)
}

// Texts lists the addresses and virtual routers for people.
func (m Moving) Texts() (texts []string) {
	for _, p := range m.Addresses {
		if p.IsSingleIP() {
			texts = append(texts, p.Addr().String())
		} else {
			texts = append(texts, p.String())
		}
	}
	for _, id := range m.VirtualRouters {
		texts = append(texts, fmt.Sprintf("virtual router %d", id))
	}
	return texts
}

// With returns the addresses and virtual routers of both, each of them once.
func (m Moving) With(o Moving) Moving {
	both := Moving{Addresses: slices.Clone(m.Addresses), VirtualRouters: slices.Clone(m.VirtualRouters)}
	for _, p := range o.Addresses {
		if !slices.Contains(both.Addresses, p) {
			both.Addresses = append(both.Addresses, p)
		}
	}
	for _, id := range o.VirtualRouters {
		if !slices.Contains(both.VirtualRouters, id) {
			both.VirtualRouters = append(both.VirtualRouters, id)
		}
	}
	return both
}

// MovingAddresses lists the addresses of the network that move between pods, on request or by a permission. No pod gets
// one as its own.
func (n *Network) MovingAddresses() netaddr.Ranges {
	all := slices.Clone(n.AllowedAddresses)
	for _, permission := range n.Permissions {
		for _, p := range permission.Moving.Addresses {
			all = append(all, netaddr.RangeOf(p))
		}
	}
	return all
}

// movingRouters lists the virtual routers of the network, whose MACs move between pods.
func (n *Network) movingRouters() []int {
	all := slices.Clone(n.VirtualRouters)
	for _, permission := range n.Permissions {
		all = append(all, permission.Moving.VirtualRouters...)
	}
	return all
}

// checkPermissions rejects permissions that are invalid on this network.
func (n *Network) checkPermissions() error {
	addresses := 0
	routers := 0
	for _, p := range n.Permissions {
		if p.Moving.IsZero() {
			return errors.New("permissions: each needs allowedAddresses or virtualRouters")
		}
		if err := cmp.Or(p.Moving.Validate(), n.checkMovable(p.Moving)); err != nil {
			return fmt.Errorf("permissions: %w", err)
		}
		addresses += len(p.Moving.Addresses)
		routers += len(p.Moving.VirtualRouters)
	}
	if addresses > maxPermitted || routers > maxPermitted {
		return fmt.Errorf("permissions: %d allowedAddresses and %d virtualRouters, at most %d of each are possible",
			addresses, routers, maxPermitted)
	}
	return nil
}

// checkMovable rejects addresses that cannot move on this network.
func (n *Network) checkMovable(m Moving) error {
	for _, p := range m.Addresses {
		if err := n.checkMovingRange(netaddr.RangeOf(p)); err != nil {
			return err
		}
	}
	return nil
}
