package attach

import (
	"context"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// ChangePod makes and removes interfaces of a connected pod; all or nothing. To the new interfaces those that stay are
// like the interfaces of another attachment of the sandbox: they keep their objects, addresses, devices and routes.
func (ps *Pods) ChangePod(_ context.Context, ev *pod.ChangePod, t *eventloop.Txn) error {
	had := ps.connections[ev.Key]
	if had == nil || had.displaced || ps.withheld.has(ev.Key) {
		return pod.Errorf(pod.CodeTryAgain, "%s: it is not connected, or in quarantine", ev)
	}
	if err := keepsRoutes(ev, had.Interfaces); err != nil {
		return err
	}
	replaceCommon := ps.common.replace(t)
	before := ps.valuesOfSandbox(ev.Netns)
	t.OnRollback(func() error { ps.rules.admitAgain(had.Attachment); return nil }) // undone last
	stays := had.withoutEnded(ev.Changes)
	ps.connections.put(stays, t)

	siblings := append(ps.connections.siblings(ev.Key, ev.Netns), stays.Attachment)
	resolver := ps.resolver(&ev.Request, siblings)
	specs, err := resolver.add(nil, ev.Changes.Made)
	if err != nil {
		return err
	}
	if len(specs) < len(ev.Changes.Made) {
		return pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: another attachment of the sandbox has one of the interfaces already; choose another name", ev)
	}
	if err := distinctFrom(ev, stays.Interfaces, specs); err != nil {
		return err
	}
	if err := keepAddresses(ev, had.Interfaces, specs); err != nil {
		return err
	}
	made, err := ps.recordsOf(resolver, specs, t)
	if err != nil {
		return err
	}
	for at := range made {
		made[at].Late = true
	}
	ev.Attachment.Interfaces = inPlace(had.Interfaces, ev.Changes, made)
	if err := distinctDestinations(ev, ev.Attachment.Interfaces); err != nil {
		return err
	}
	ps.releaseEnded(ev, had.Interfaces, t)

	ps.admit(ev.Attachment, t)
	ps.connections.put(newConnection(ev.Attachment), t)
	desired.Replace(t, before, ps.valuesOfSandbox(ev.Netns))
	replaceCommon()
	return nil
}

// withoutEnded returns a connection without the interfaces that changes remove or replace.
func (c *connection) withoutEnded(changes pod.Changes) *connection {
	stays := newConnection(c.Attachment)
	stays.Interfaces = slices.DeleteFunc(stays.Interfaces, func(i pod.Interface) bool { return changes.Ends(i.Name) })
	return stays
}

// inPlace returns the interfaces of an attachment after a change: a new interface has the place of the one that it
// replaces, the others follow at the end.
func inPlace(had []pod.Interface, changes pod.Changes, made []pod.Interface) []pod.Interface {
	var all []pod.Interface
	for _, i := range had {
		at := slices.IndexFunc(made, func(m pod.Interface) bool { return m.Name == i.Name })
		switch {
		case at >= 0:
			all = append(all, made[at])
		case !changes.Ends(i.Name):
			all = append(all, i)
		}
	}
	for _, m := range made {
		if !slices.ContainsFunc(had, func(i pod.Interface) bool { return i.Name == m.Name }) {
			all = append(all, m)
		}
	}
	return all
}

// distinctFrom rejects a MAC or a prefix of a new interface that another interface of the pod has.
func distinctFrom(ev *pod.ChangePod, stay []pod.Interface, specs []spec) error {
	for _, s := range specs {
		for _, i := range stay {
			if i.MAC == s.mac {
				return pod.Errorf(pod.CodeAddressInUse,
					"%s: interface %s: MAC %s is already used by interface %s; request another one or none", ev, s.name,
					s.mac, i.Name)
			}
			for _, p := range s.routed {
				if i.Network == s.network.name && slices.ContainsFunc(i.RoutedPrefixes, p.Overlaps) {
					return pod.Errorf(pod.CodeInvalidAnnotation,
						"%s: interfaces %s and %s of network %s have the same routedPrefixes %s", ev, i.Name, s.name,
						i.Network, p)
				}
			}
		}
	}
	return nil
}

// keepsRoutes rejects the removal of an interface with the routes to its network, which another interface of the pod
// uses too. If the interface is made again, it gets them again.
func keepsRoutes(ev *pod.ChangePod, had []pod.Interface) error {
	for _, i := range had {
		if !slices.Contains(ev.Changes.Removed, i.Name) || !hasRoutesTo(i, i.Network) {
			continue
		}
		for _, o := range had {
			isLeft := o.Network == i.Network && o.Memif == nil && o.Type != pod.TypeIPAM && !ev.Changes.Ends(o.Name)
			if isLeft && !hasRoutesTo(o, o.Network) {
				return pod.Errorf(pod.CodeInvalidAnnotation,
					"%s: interface %s has the routes to its network, by which the pod also uses interface %s; "+
						"remove both, or create the pod again", ev, i.Name, o.Name)
			}
		}
	}
	return nil
}

// keepAddresses rejects another address, or another claim, for an interface that is replaced by one of the same
// network: the addresses of an interface outlive its edits.
func keepAddresses(ev *pod.ChangePod, had []pod.Interface, specs []spec) error {
	for _, s := range specs {
		for _, i := range had {
			if i.Name != s.name || i.Network != s.network.name {
				continue
			}
			if claim := s.addresses.claim; i.IPAMClaim != "" && (claim == nil || claim.Name != i.IPAMClaim) {
				return pod.Errorf(pod.CodeInvalidAnnotation,
					"%s: interface %s has the addresses of IPAMClaim %s, and an edit cannot change that: "+
						"remove the interface first, then request it again", ev, s.name, i.IPAMClaim)
			}
			for _, a := range s.addresses.wanted {
				if indexOfAddress(i, a) < 0 {
					return pod.Errorf(pod.CodeInvalidAnnotation,
						"%s: interface %s has %v, and an edit cannot give it %s: remove the interface first, then request it again",
						ev, s.name, i.Addresses, a)
				}
			}
		}
	}
	return nil
}

// releaseEnded releases the addresses of interfaces that are removed, or replaced by one of another network.
func (ps *Pods) releaseEnded(ev *pod.ChangePod, had []pod.Interface, t *eventloop.Txn) {
	for _, i := range had {
		keeps := func(m pod.Interface) bool { return m.Name == i.Name && m.Network == i.Network }
		if ev.Changes.Ends(i.Name) && !slices.ContainsFunc(ev.Attachment.Interfaces, keeps) {
			release(ps.networks.Allocator(i.Network), desired.HolderOf(ev.Key, i.Name), t)
		}
	}
}
