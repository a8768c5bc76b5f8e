package attach

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// A direct network connects two memifs of this node without the dataplane: a client and a server.
//
//	pod a, client <-- d1.sock --> agent: control messages <-- @weft/m2 --> pod b, server
//	      \------------------- packets: shared memory -------------------/
//
// The splice of their control sockets is an object of both attachments. It exists while both have an end, and no policy selects either: the
// dataplane, which enforces policies, does not see the packets.

// becomeDirect makes an interface a member of its direct network.
func (rq *request) becomeDirect(s *spec) error {
	s.options.Role = cmp.Or(s.options.Role, pod.RoleClient)
	for _, c := range rq.inOrder() {
		if c.displaced || older(rq.ev.ID, rq.ev.Key, c) {
			continue
		}
		for _, i := range c.Interfaces {
			if i.Network != s.network || i.Memif == nil {
				continue
			}
			if err := rq.besideMember(*s, c, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// besideMember rejects a memif that does not suit a member of its direct network.
func (rq *request) besideMember(s spec, c *connection, i pod.Interface) error {
	mode := cmp.Or(s.options.Mode, pod.MemifEthernet)
	switch {
	case i.Memif.Role == s.options.Role && rq.isOfEarlierPod(rq.ev.ID, desired.HolderOf(c.Key, i.Name)):
		return pod.Errorf(pod.CodeTryAgain, "%s: interface %s: the %s of network %s is an earlier pod of this name that is not deleted yet; try again",
			rq.ev, s.name, s.options.Role, s.network)
	case i.Memif.Role == s.options.Role:
		return pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: interface %s: direct network %s has a %s on this node already, %s of %s; it connects one server (option role) and one client",
			rq.ev, s.name, s.network, s.options.Role, i.Name, c.Name())
	case i.Memif.Mode != mode:
		return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: mode %s differs from mode %s of %s of %s, to which network %s connects it",
			rq.ev, s.name, mode, i.Memif.Mode, i.Name, c.Name(), s.network)
	}
	return nil
}

// distinctRoles rejects two memifs of a pod with the same role on a direct network.
func distinctRoles(ev *pod.AddPod, specs []spec) error {
	members := make(pod.DirectMembers)
	for _, s := range specs {
		if s.memif == nil || !s.memif.IsDirect() {
			continue
		}
		if err := members.Add(s.name, s.network, s.memif.Role); err != nil {
			return ev.Failed(err)
		}
	}
	return nil
}

// end is an end of a splice.
type end struct {
	of *connection
	pod.Interface
}

// directEnds returns the members of direct networks, by role and network: a network has one of each role, unless a pod has two sandboxes
// with different devices.
func (ps *Pods) directEnds() map[string]map[string]end {
	ends := map[string]map[string]end{pod.RoleClient: {}, pod.RoleServer: {}}
	for _, c := range ps.wired { // each event calls this, so they are not sorted
		for _, i := range c.Interfaces {
			if i.Memif == nil || !i.Memif.IsDirect() || c.displaced {
				continue
			}
			of := ends[i.Memif.Role]
			if other, is := of[i.Network]; !is || other.of.Created.Before(c.Created) {
				of[i.Network] = end{c, i}
			}
		}
	}
	return ends
}

// spliceValues lists the splices of direct networks, by network.
func (ps *Pods) spliceValues() desired.Values {
	var v desired.Values
	ends := ps.directEnds()
	for _, network := range slices.Sorted(maps.Keys(ends[pod.RoleServer])) {
		client, hasClient := ends[pod.RoleClient][network]
		server := ends[pod.RoleServer][network]
		if !hasClient || ps.isRestricted(client) || ps.isRestricted(server) {
			continue
		}
		v = append(v, ps.splice(client, server)...)
	}
	return v
}

// isRestricted reports whether a policy selects an end.
func (ps *Pods) isRestricted(e end) bool { return ps.rulesOf(e.of.Pod)[e.Name] != policy.Lists{} }

// splice lists the values that connect two memifs; none if an allocation is gone.
func (ps *Pods) splice(client, server end) desired.Values {
	var v desired.Values
	m := client.Memif
	s := wire.MemifSplice{
		Directory: wire.FileKey(directoryOf(m)),
		ClientID:  m.ID, ClientSecret: ps.secretOf(m.Allocation),
		ServerID: server.Memif.ID, ServerSecret: ps.secretOf(server.Memif.Allocation),
		Namespace: wire.Namespace(server.of.Netns), Server: server.ServerSocket(),
	}
	if s.ClientSecret == "" || s.ServerSecret == "" {
		return v
	}
	key := wire.MemifSpliceKey(m.DirectSocket())
	v.Add(key, s)
	v.Add(wire.FileKey(m.DirectSocket()), socketFile(m, key))
	return v
}
