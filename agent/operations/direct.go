package operations

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// peerOf describes the peer of a memif on a direct network, or why the memif is not connected; "" for other interfaces.
func (o *Server) peerOf(a *pod.Attachment, i pod.Interface) string {
	if i.Memif == nil || !i.Memif.IsDirect() {
		return ""
	}
	wanted := pod.RoleServer
	if i.Memif.Role == pod.RoleServer {
		wanted = pod.RoleClient
	}
	b, peer := o.member(i.Network, wanted)
	if b == nil {
		return fmt.Sprintf("not connected: no pod of this node is the %s of network %s", wanted, i.Network)
	}
	client := i
	if wanted == pod.RoleClient {
		client = peer
	}
	return fmt.Sprintf("%s, %s of %s", o.splice(client.Memif, o.restricted(a, i), o.restricted(b, peer)), peer.Name,
		b.Name())
}

// member returns the member of a direct network with a role, or nil. Of two sandboxes of a pod it returns the newer
// one.
func (o *Server) member(network, role string) (a *pod.Attachment, i pod.Interface) {
	for _, b := range o.config.Pods.Attachments() {
		for _, other := range b.Interfaces {
			if other.Memif != nil && other.Memif.Role == role && other.Network == network &&
				(a == nil || a.Created.Before(b.Created)) {
				a = &b
				i = other
			}
		}
	}
	return a, i
}

// splice describes the state of a client's splice.
func (o *Server) splice(client *pod.Memif, restricted ...string) string {
	restricted = slices.DeleteFunc(restricted, func(s string) bool { return s == "" })
	if len(restricted) > 0 {
		return "closed, because policies select " + strings.Join(restricted, " and ")
	}
	connected, exists, err := o.config.Splices.State(client.DirectSocket())
	switch {
	case connected:
		return "connected"
	case !exists:
		return "not connected yet"
	case err != nil:
		return fmt.Sprintf("not connected (%v)", err)
	}
	return "waits for the client to connect"
}

// restricted names an interface and its pod if policies select it; otherwise it returns "".
func (o *Server) restricted(a *pod.Attachment, i pod.Interface) string {
	if (o.config.Network.Pods.Lists(a.Pod)[i.Name] == policy.Lists{}) {
		return ""
	}
	return fmt.Sprintf("%s of %s", i.Name, a.Name())
}
