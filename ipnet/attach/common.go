package attach

import (
	"maps"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// commonObjects are the objects that belong to several attachments: the ACLs of the rules of pods, and the splices of
// direct networks.
type commonObjects struct {
	connections  connections
	connectivity *connectivity
	converted    desired.ACLs // the ACLs that the last call of acls listed
}

// values lists the common objects of all connections.
func (co *commonObjects) values() desired.Values { return append(co.acls(), co.splices()...) }

// replace returns a function that adds the difference between the common objects of then and now to the transaction.
func (co *commonObjects) replace(t *eventloop.Txn) func() {
	replaceACLs := co.replaceACLs(t)
	splices := co.splices()
	return func() {
		replaceACLs()
		desired.Replace(t, splices, co.splices())
	}
}

// replaceACLs returns a function that adds the difference between the ACLs of then and now to the transaction. The name
// of an ACL says what it contains, so only names are compared.
func (co *commonObjects) replaceACLs(t *eventloop.Txn) func() {
	if co.connectivity.rules.policies == nil {
		return func() {}
	}
	before := co.acls()
	return func() {
		after := co.acls()
		was := before.Keys()
		is := after.Keys()
		for _, key := range was {
			if !slices.Contains(is, key) {
				t.Delete(key)
			}
		}
		for _, s := range after {
			if !slices.Contains(was, s.Key) {
				t.Put(s.Key, s.Value)
			}
		}
	}
}

// acls lists the ACLs of the rules of all connections. Several interfaces share one.
func (co *commonObjects) acls() desired.Values {
	type filter struct {
		lists     [2]string
		isGuarded bool
	}
	var v desired.Values
	done := make(map[filter]bool)
	taken := make(map[string]bool)
	add := func(lists policy.Lists, isGuarded bool) {
		f := filter{namesIn(lists), isGuarded}
		if done[f] {
			return
		}
		done[f] = true
		for _, acl := range co.converted.Of(lists, isGuarded) {
			if !taken[acl.Label] {
				taken[acl.Label] = true
				v.Add(wire.ACLKey(acl.Label), acl)
			}
		}
	}
	for _, c := range co.connections.inOrder() {
		for _, i := range c.Interfaces {
			if c.displaced || i.Memif != nil && i.Memif.IsDirect() {
				continue
			}
			lists := co.connectivity.rules.of(c.Pod)[i.Name]
			for _, isGuarded := range guardsOf(i, networkNamed(i.Network, co.connectivity.networks)) {
				add(lists, isGuarded)
			}
		}
	}
	co.converted.Forget()
	return v
}

// guardsOf lists whether the parts of an interface are guarded: itself, and its VLANs, which never are.
func guardsOf(i pod.Interface, n network) []bool {
	if n.isGuarded() && i.VLANs.Len() > 0 {
		return []bool{true, false}
	}
	return []bool{n.isGuarded()}
}

// A direct network connects two memifs of this node without the dataplane: a client and a server.
//
//	pod a, client <-- d1.sock --> agent: control messages <-- @weft/m2 --> pod b, server
//	      \------------------- packets: shared memory -------------------/
//
// The splice of their control sockets is an object of both attachments. It exists while both have an end, and no policy
// selects either: the dataplane, which enforces policies, does not see the packets.

// end is an end of a splice.
type end struct {
	of *connection
	pod.Interface
}

// splices lists the objects of direct networks, by network.
func (co *commonObjects) splices() desired.Values {
	var v desired.Values
	clients, servers := co.directEnds()
	for _, network := range slices.Sorted(maps.Keys(servers)) {
		client, hasClient := clients[network]
		server := servers[network]
		if !hasClient || co.isRestricted(client) || co.isRestricted(server) {
			continue
		}
		v = append(v, co.connectivity.directMemif(client, server)...)
	}
	return v
}

// directEnds returns the members of direct networks, by network: a network has one client and one server, unless a pod
// has two sandboxes with different devices.
func (co *commonObjects) directEnds() (clients, servers map[string]end) {
	clients = make(map[string]end)
	servers = make(map[string]end)
	for _, c := range co.connections { // each event calls this, so they are not sorted
		for _, i := range c.Interfaces {
			if i.Memif == nil || !i.Memif.IsDirect() || c.displaced {
				continue
			}
			ends := clients
			if i.Memif.Role == pod.RoleServer {
				ends = servers
			}
			if other, is := ends[i.Network]; !is || other.of.Created.Before(c.Created) {
				ends[i.Network] = end{c, i}
			}
		}
	}
	return clients, servers
}

// isRestricted reports whether a policy selects an end.
func (co *commonObjects) isRestricted(e end) bool {
	return co.connectivity.rules.of(e.of.Pod)[e.Name] != policy.Lists{}
}
