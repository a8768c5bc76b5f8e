package networks

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// Users knows which pods a custom network has.
type Users interface {
	// UsersOf describes the pods of a network and how to release it; "" if the network has no pods.
	UsersOf(network string) string
}

// SetNetworks replaces the custom networks by those of the event, as far as their users allow it. A network that cannot
// change stays as it was, and Refused says why. Numbers are allocated in the order of the names. Numbers that an event
// frees are not allocated again by the same event, because the dataplane uses them until the commit.
func (n *Networks) SetNetworks(ev *pod.SetNetworks, users Users, t *eventloop.Txn) {
	ch := &change{
		Networks: n, ev: ev, users: users, t: t,
		before: n.Customs(), after: maps.Clone(n.Customs()), taken: map[string]map[uint32]bool{},
	}
	ev.Refused = make(map[string]string)
	wanted := ch.wanted()
	for _, name := range slices.Sorted(maps.Keys(ch.before)) {
		if _, stays := wanted[name]; !stays && ev.Refused[name] == "" {
			ch.remove(name)
		}
	}
	for _, w := range slices.SortedFunc(maps.Values(wanted), chosenVNIFirst) {
		if err := ch.set(w); err != nil {
			ev.Refused[w.Name] = err.Error()
		}
		ch.permit(w)
	}
	n.customs.Store(&ch.after)
	refused := maps.Clone(ev.Refused)
	maps.Copy(refused, ev.Invalid)
	former := n.refused.Swap(&refused)
	n.hold()
	t.OnRollback(func() error {
		n.customs.Store(&ch.before)
		n.refused.Store(former)
		n.hold()
		return nil
	})
}

func chosenVNIFirst(a, b pod.Network) int {
	if (a.VNI == 0) != (b.VNI == 0) {
		return cmp.Compare(b.VNI, a.VNI)
	}
	return cmp.Compare(a.Name, b.Name)
}

// change applies one event to the custom networks.
type change struct {
	*Networks
	ev            *pod.SetNetworks
	users         Users
	t             *eventloop.Txn
	before, after map[string]*Custom
	taken         map[string]map[uint32]bool // by kind of number; created on first use
}

// wanted returns the valid networks of the event by name. A network that is there twice stays as it was.
func (ch *change) wanted() map[string]pod.Network {
	wanted := make(map[string]pod.Network)
	for _, w := range ch.ev.Networks {
		if _, twice := wanted[w.Name]; twice {
			ch.ev.Refused[w.Name] = "it is given twice"
		} else if err := ch.validate(w); err != nil && !(w.Closed && ch.before[w.Name] != nil) {
			ch.ev.Refused[w.Name] = err.Error()
		}
		wanted[w.Name] = ordered(w)
	}
	for name := range ch.ev.Refused {
		delete(wanted, name)
	}
	return wanted
}

// validate checks the specification of a network for this node.
func (ch *change) validate(w pod.Network) error {
	if err := validate(w); err != nil || w.VNI == 0 || w.Direct {
		return err
	}
	return ch.Config.carries("network "+w.Name, w.MTU)
}

// ordered returns a network with its CIDRs in the order of records, IPv4 first.
func ordered(w pod.Network) pod.Network {
	w.CIDRs = slices.SortedFunc(slices.Values(w.CIDRs), func(a, b netip.Prefix) int {
		return a.Addr().Compare(b.Addr())
	})
	return w
}

func (ch *change) remove(name string) {
	if users := ch.users.UsersOf(name); users != "" {
		ch.ev.Refused[name] = "it cannot be removed: " + users
		ch.isolate(ch.before[name])
		return
	}
	ch.forget(ch.before[name])
	delete(ch.after, name)
}

// isolate closes a network that pods use although the cluster has deleted it or changed its VNI. It also removes the
// tunnels: another network may have the old VNI now.
func (ch *change) isolate(was *Custom) {
	if was.Network.VNI == 0 {
		ch.close(was)
		return
	}
	c := *was
	c.Network.VNI = 0
	c.VNI = 0
	c.Network.Closed = true
	ch.after[c.Network.Name] = &c
	ch.t.Save(networksBucket, c.Network.Name, c.SavedNetwork)
}

// set creates or changes a network.
func (ch *change) set(w pod.Network) error {
	was := ch.before[w.Name]
	if w.Closed && was != nil {
		ch.close(was)
		return nil
	}
	_, needsBridge := ch.Config.numbered(w)
	switch {
	case was == nil:
		was = &Custom{}
	case reflect.DeepEqual(was.Network, w) && needsBridge == (was.BridgeDomain != 0):
		return nil
	case was.Network.Type == w.Type && was.Network.Direct == w.Direct && slices.Equal(was.Network.CIDRs, w.CIDRs) &&
		was.Network.Gateway.String() == w.Gateway.String() &&
		(w.VNI == 0 || w.VNI == was.VNI || was.Network.VNI == 0):
		return ch.alter(was, w)
	}
	if users := ch.users.UsersOf(w.Name); users != "" {
		if was.Network.VNI != 0 && w.VNI != was.VNI {
			ch.isolate(was)
		}
		return fmt.Errorf("its type, CIDRs, gateway, VNI and direct cannot change: %s", users)
	}
	c, err := ch.build(w, was.SavedNetwork)
	if err != nil {
		return err
	}
	if was.Network.Name != "" {
		ch.forget(was)
	}
	ch.after[w.Name] = c
	ch.t.Save(networksBucket, w.Name, c.SavedNetwork)
	return nil
}

// permit gives a network the permissions of now, also if it is closed or another part of it cannot change: a pod that
// lost its labels does not keep a permission.
func (ch *change) permit(w pod.Network) {
	c := ch.after[w.Name]
	if c == nil || reflect.DeepEqual(c.Network.Permissions, w.Permissions) {
		return
	}
	now := c.Network
	now.Permissions = w.Permissions
	if now.Validate() != nil { // they suit only what the network cannot become
		now.Permissions = nil
	}
	if err := ch.alter(c, now); err != nil {
		ch.ev.Refused[w.Name] = err.Error()
	}
}

// close refuses further pods on a network; its pods stay connected.
func (ch *change) close(was *Custom) {
	if was.Network.Closed {
		return
	}
	c := *was
	c.Network.Closed = true
	ch.after[c.Network.Name] = &c
	ch.t.Save(networksBucket, c.Network.Name, c.SavedNetwork)
}

// alter changes properties of a network that its pods do not depend on. A VNI of the node's own choice is one of them,
// because such a network has no tunnels yet.
func (ch *change) alter(was *Custom, w pod.Network) (err error) {
	s := was.SavedNetwork
	s.Network = w
	if w.VNI != 0 {
		s.VNI = w.VNI
		err = ch.checkVNI(&s)
		if err != nil {
			return err
		}
	}
	if _, needsBridge := ch.Config.numbered(w); !needsBridge {
		s.BridgeDomain = 0
	} else if s.BridgeDomain, err = ch.bridgeDomain(s.BridgeDomain); err != nil {
		return err
	}
	c := &Custom{SavedNetwork: s, VRF: was.VRF, addresses: was.addresses}
	if err := c.checkVLANs(); err != nil {
		return err
	}
	if c.addresses != nil {
		c.addresses.SetPools(c.shared(ch.Config.Blocks)) // none is refused: their prefixes are the same
		ch.t.OnRollback(func() error { c.addresses.SetPools(was.shared(ch.Config.Blocks)); return nil })
	}
	ch.after[w.Name] = c
	ch.t.Save(networksBucket, w.Name, s)
	return nil
}

func (ch *change) bridgeDomain(had uint32) (uint32, error) {
	return ch.number("bridge domain", had, ch.Config.BridgeDomains, func(c *Custom) uint32 { return c.BridgeDomain })
}

// build returns a network without pods. It keeps the numbers that it had.
func (ch *change) build(w pod.Network, had SavedNetwork) (c *Custom, err error) {
	s := SavedNetwork{Network: w, VNI: w.VNI}
	needsTable, needsBridge := ch.Config.numbered(w)
	if needsTable {
		s.Table, err = ch.number("VRF table", had.Table, ch.Config.Tables, func(c *Custom) uint32 { return c.Table })
	}
	if needsBridge && err == nil {
		s.BridgeDomain, err = ch.bridgeDomain(had.BridgeDomain)
	}
	if w.VNI == 0 && err == nil {
		s.VNI, err = ch.number("VNI", had.VNI, ch.Config.VNIs, func(c *Custom) uint32 { return c.VNI })
	}
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(ch.checkVNI(&s), (&Custom{SavedNetwork: s}).checkVLANs()); err != nil {
		return nil, err
	}
	return ch.newCustom(s)
}

// number returns the number that a network had, else the lowest number that no network has or had before the event.
func (ch *change) number(what string, had uint32, from IDs, of func(*Custom) uint32) (uint32, error) {
	if had != 0 {
		return had, nil
	}
	taken := ch.taken[what]
	if taken == nil {
		taken = map[uint32]bool{of(&Custom{SavedNetwork: ch.ofDefault()}): true}
		for _, networks := range []map[string]*Custom{ch.before, ch.after} {
			for _, c := range networks {
				taken[of(c)] = true
			}
		}
		ch.taken[what] = taken
	}
	id, err := from.lowest(what, taken)
	taken[id] = true
	return id, err
}

// ofDefault returns the numbers of the network default.
func (n *Networks) ofDefault() SavedNetwork {
	s := SavedNetwork{Table: n.Config.PodVRFTable}
	if n.Config.HasTunnels() {
		s.BridgeDomain = n.Config.MeshDomain
		s.VNI = n.Config.VNI
	}
	return s
}

// checkVNI returns an error if another network has the VNI of a network, or one has that of a VLAN of the other.
func (ch *change) checkVNI(s *SavedNetwork) error {
	if vni := ch.ofDefault().VNI; vni != 0 && s.Network.HasVNI(s.VNI, vni) {
		return vniInUse(vni, pod.DefaultNetwork)
	}
	for of, c := range ch.after {
		switch {
		case of == s.Network.Name:
		case c.Network.HasVNI(c.VNI, s.VNI):
			return vniInUse(s.VNI, of)
		case s.Network.HasVNI(s.VNI, c.VNI):
			return vniInUse(c.VNI, of)
		}
	}
	return nil
}

func vniInUse(vni uint32, network string) error {
	return fmt.Errorf("VNI %d is already used by network %s", vni, network)
}

// forget removes the records of a network and of its addresses.
func (ch *change) forget(c *Custom) {
	ch.t.Save(networksBucket, c.Network.Name, nil)
	if c.addresses == nil {
		return
	}
	for _, l := range c.addresses.Remembered() {
		ch.t.Save(LeasesBucket, l.Key(), nil)
	}
}
