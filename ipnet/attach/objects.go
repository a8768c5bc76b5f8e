package attach

import (
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// objects makes the desired values of the attachments. What connects an attachment is a matter of connectivity; what
// several attachments have in common, of common.
type objects struct {
	connections  connections
	connectivity *connectivity
	common       *commonObjects
	withheld     withheld
}

// Values lists the values of all attachments.
func (os *objects) Values() desired.Values {
	var v desired.Values
	for _, c := range os.connections.inOrder() {
		if !c.displaced {
			v = append(v, os.valuesOf(c.Attachment)...)
		}
	}
	return append(v, os.common.values()...)
}

// valuesOf lists the values of an attachment that are desired.
func (os *objects) valuesOf(a *pod.Attachment) desired.Values {
	return os.withheld.permitted(a.Key, os.connectivity.valuesOf(a, os.connections.siblings))
}

// Objects lists the keys of the values that connect an attachment, withheld or not. Only the content of these values
// depends on sibling attachments, which belong to the event loop.
func (os *objects) Objects(a *pod.Attachment) []string {
	return os.connectivity.valuesOf(a, noSiblings).Keys()
}

// Owners returns the interfaces of attachments that objects belong to, by key: the values that connect them, withheld
// or not, ACLs and direct memifs. It may be called from any goroutine.
func (os *objects) Owners(all []pod.Attachment) map[string]pod.Owners {
	return os.connectivity.owners(all)
}

// replace returns a function that adds the difference between the values of then and now of connections to the
// transaction.
func (os *objects) replace(all []*connection, t *eventloop.Txn) func() {
	values := func() desired.Values {
		var v desired.Values
		for _, c := range all {
			if !c.displaced {
				v = append(v, os.valuesOf(c.Attachment)...)
			}
		}
		return v
	}
	before := values()
	return func() { desired.Replace(t, before, values()) }
}

// valuesOfSandbox lists the values of all attachments of a sandbox: their memifs share objects.
func (os *objects) valuesOfSandbox(netns pod.Netns) desired.Values {
	var v desired.Values
	for _, c := range os.connections.inOrder() {
		if !c.displaced && c.Netns == netns {
			v = append(v, os.valuesOf(c.Attachment)...)
		}
	}
	return v
}

// shared lists the values of c that other attachments also need, with the content for these: the namespace, and the
// objects that their memifs share with its memifs.
func (os *objects) shared(c *connection) desired.Values {
	var v desired.Values
	for _, other := range os.connections.inOrder() {
		if other.Key == c.Key || other.displaced || other.Netns.Path != c.Netns.Path {
			continue
		}
		v.Add(wire.NamespaceKey(c.Netns.Path), wire.Namespace(other.Netns))
		for _, p := range os.connectivity.containers(other.Attachment, os.connections.siblings) {
			v = append(v, p.values...)
		}
	}
	return v
}
