package attach

import (
	"slices"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// owners returns the interfaces of attachments that objects belong to, by key: the objects that connect them, withheld
// or not, ACLs and direct memifs.
func (c *connectivity) owners(all []pod.Attachment) map[string]pod.Owners {
	owners := make(map[string]pod.Owners)
	for at := range all {
		a := &all[at]
		for _, p := range c.partsOf(a, noSiblings) {
			for _, name := range p.interfaces {
				own(owners, pod.Owner{Pod: a.Pod, ContainerID: a.Key.ContainerID, Interface: name}, keysOf(p.values)...)
			}
		}
		for _, i := range a.Interfaces {
			own(owners, pod.Owner{Pod: a.Pod, ContainerID: a.Key.ContainerID, Interface: i.Name}, splicesOf(i, all)...)
		}
	}
	return owners
}

// own adds an owner of objects.
func own(owners map[string]pod.Owners, o pod.Owner, keys ...string) {
	for _, key := range keys {
		if !slices.Contains(owners[key], o) {
			owners[key] = append(owners[key], o)
		}
	}
}

// keysOf lists the keys of values, and of the ACLs that they apply.
func keysOf(v desired.Values) []string {
	keys := v.Keys()
	for _, s := range v {
		if applied, is := s.Value.(wire.InterfaceACL); is {
			for _, name := range slices.Concat(applied.Input, applied.Output) {
				keys = append(keys, wire.ACLKey(name))
			}
		}
	}
	return keys
}

// splicesOf lists the keys of the splices of a memif on a direct network. The client names them.
func splicesOf(i pod.Interface, all []pod.Attachment) []string {
	if i.Memif == nil || !i.Memif.IsDirect() {
		return nil
	}
	clients := []pod.Interface{i}
	if i.Memif.Role == pod.RoleServer {
		clients = clientsOn(i.Network, all)
	}
	var keys []string
	for _, c := range clients {
		keys = append(keys, wire.MemifSpliceKey(c.Memif.DirectSocket()), wire.FileKey(c.Memif.DirectSocket()))
	}
	return keys
}

// clientsOn lists the clients of a direct network.
func clientsOn(network string, all []pod.Attachment) []pod.Interface {
	var clients []pod.Interface
	for _, a := range all {
		for _, i := range a.Interfaces {
			if i.Network == network && i.Memif != nil && i.Memif.Role == pod.RoleClient {
				clients = append(clients, i)
			}
		}
	}
	return clients
}
