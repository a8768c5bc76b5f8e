package pod

import (
	"fmt"
	"strings"
)

// Owner is an interface of a pod that an object belongs to.
type Owner struct {
	Pod         ID // zero for a container outside Kubernetes
	ContainerID string
	Interface   string // in the pod
}

// String returns NAMESPACE/NAME:INTERFACE, the name of an interface of a pod for people. The short ID of a container
// outside Kubernetes takes the place of the pod.
func (o Owner) String() string {
	if o.Pod.IsZero() {
		return ShortID(o.ContainerID) + ":" + o.Interface
	}
	return o.Pod.String() + ":" + o.Interface
}

// Owners are the interfaces that one object belongs to. Only few objects have more than one: the files of memifs that
// share a socket, the namespace of several attachments, and the ACLs of pods with equal rules.
type Owners []Owner

// mostNamed limits the owners that a text names: a line about an ACL of all pods stays short.
const mostNamed = 3

// String names the first owners, and counts the others; "" if there are none.
func (o Owners) String() string {
	var names []string
	for _, owner := range o[:min(len(o), mostNamed)] {
		names = append(names, owner.String())
	}
	text := strings.Join(names, ", ")
	if more := len(o) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Named returns the key of an object with its owners, for people: "linux.veth/weft-0011223344556677-red0 of
// shop/cart:red0".
func (o Owners) Named(key string) string {
	if len(o) == 0 {
		return key
	}
	return key + " of " + o.String()
}
