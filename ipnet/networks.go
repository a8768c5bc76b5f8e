package ipnet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// ChangeNetworks makes the custom networks those of the event, as far as pods allow it. What cannot be is left as it was,
// and Refused says why. Numbers are given in the order of the names, and those that become free are not given again by the
// same event: the dataplane knows them until it is done.
func (n *Network) ChangeNetworks(_ context.Context, ev *pod.SetNetworks, t *eventloop.Txn) error {
	ch := &change{Network: n, ev: ev, t: t, before: n.customNetworks(), after: maps.Clone(n.customNetworks())}
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
	}
	n.customs.Store(&ch.after)
	t.OnRollback(func() error { n.customs.Store(&ch.before); return nil })
	return nil
}

func chosenVNIFirst(a, b pod.Network) int {
	if (a.VNI == 0) != (b.VNI == 0) {
		return cmp.Compare(b.VNI, a.VNI)
	}
	return cmp.Compare(a.Name, b.Name)
}

// change is what one event does to the custom networks.
type change struct {
	*Network
	ev            *pod.SetNetworks
	t             *eventloop.Txn
	before, after map[string]*custom
}

// wanted are the networks of the event that make sense, by name. One that is there twice stays as it was.
func (ch *change) wanted() map[string]pod.Network {
	wanted := make(map[string]pod.Network)
	for _, w := range ch.ev.Networks {
		if _, twice := wanted[w.Name]; twice {
			ch.ev.Refused[w.Name] = "it is there twice"
		} else if err := sound(w); err != nil {
			ch.ev.Refused[w.Name] = err.Error()
		}
		wanted[w.Name] = w
	}
	for name := range ch.ev.Refused {
		delete(wanted, name)
	}
	return wanted
}

func (ch *change) remove(name string) {
	if users := ch.users(name); users != "" {
		ch.ev.Refused[name] = "it cannot be removed: " + users
		return
	}
	ch.takeAway(ch.before[name])
	delete(ch.after, name)
}

// set makes a network, or makes it another.
func (ch *change) set(w pod.Network) error {
	was := ch.before[w.Name]
	switch {
	case was == nil:
		return ch.make(w, SavedNetwork{})
	case reflect.DeepEqual(was.Network, w):
		return nil
	case was.Network.Type == w.Type && slices.Equal(was.Network.CIDRs, w.CIDRs) && (w.VNI == was.VNI || w.VNI == 0 && was.Network.VNI == 0):
		s := was.SavedNetwork
		s.Network = w
		ch.keep(&custom{SavedNetwork: s, vrf: was.vrf, addresses: was.addresses})
		return nil
	}
	if users := ch.users(w.Name); users != "" {
		return fmt.Errorf("its type, CIDRs and VNI cannot change: %s", users)
	}
	ch.takeAway(was)
	if err := ch.make(w, was.SavedNetwork); err != nil {
		ch.keep(was)
		return err
	}
	return nil
}

// make makes a network that has no pods; numbers that it had stay its own.
func (ch *change) make(w pod.Network, had SavedNetwork) error {
	s := SavedNetwork{Network: w, VNI: w.VNI}
	needsTable, needsBridge := numbered(w)
	for _, number := range []struct {
		what   string
		needed bool
		had    uint32
		from   IDs
		of     func(*custom) uint32
		to     *uint32
	}{
		{"VRF table", needsTable, had.Table, ch.config.Tables, func(c *custom) uint32 { return c.Table }, &s.Table},
		{"bridge domain", needsBridge, had.BridgeDomain, ch.config.BridgeDomains, func(c *custom) uint32 { return c.BridgeDomain }, &s.BridgeDomain},
		{"VNI", w.VNI == 0, 0, ch.config.VNIs, func(c *custom) uint32 { return c.VNI }, &s.VNI},
	} {
		if !number.needed {
			continue
		}
		var err error
		if *number.to = number.had; number.had == 0 {
			*number.to, err = number.from.lowest(number.what, ch.taken(number.of))
		}
		if err != nil {
			return err
		}
	}
	if other := ch.vniOf(s.VNI, w.Name); other != "" {
		return fmt.Errorf("VNI %d is that of network %s", s.VNI, other)
	}
	c, err := ch.newCustom(s)
	if err != nil {
		return err
	}
	ch.keep(c)
	return nil
}

// taken are the numbers of a kind that networks have, or had before the event.
func (ch *change) taken(of func(*custom) uint32) map[uint32]string {
	taken := map[uint32]string{}
	for _, networks := range []map[string]*custom{ch.before, ch.after} {
		for name, c := range networks {
			taken[of(c)] = name
		}
	}
	return taken
}

// vniOf is the network, other than this one, that has a VNI.
func (ch *change) vniOf(vni uint32, name string) string {
	for other, c := range ch.after {
		if c.VNI == vni && other != name {
			return other
		}
	}
	return ""
}

// keep makes a network, as it is now, one of those after the event.
func (ch *change) keep(c *custom) {
	ch.after[c.Network.Name] = c
	ch.t.Save(networksBucket, c.Network.Name, c.SavedNetwork)
	c.values(ch.mtuOf(c)).put(ch.t)
}

// takeAway forgets a network and all that is kept of its addresses.
func (ch *change) takeAway(c *custom) {
	for _, key := range c.values(ch.mtuOf(c)).keys() {
		ch.t.Delete(key)
	}
	ch.t.Save(networksBucket, c.Network.Name, nil)
	if c.addresses == nil {
		return
	}
	for _, l := range c.addresses.Remembered() {
		ch.t.Save(leasesBucket, l.Key(), nil)
	}
}

// users says which pods a network has; "" if none.
func (n *Network) users(network string) string {
	first, more := "", 0
	for _, c := range n.inOrder() {
		switch {
		case !slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return i.Network == network }):
		case first == "":
			first = c.Name() + " (" + c.Key.String() + ")"
		default:
			more++
		}
	}
	switch {
	case first == "":
		return ""
	case more == 0:
		return first + " is attached to it; delete it first"
	}
	return fmt.Sprintf("%s and %d more are attached to it; delete them first", first, more)
}
