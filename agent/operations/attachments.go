package operations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/agent/drift"
	"github.com/weftnet/weft/agent/shown"
	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/policy"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// attachments lists attachments with the peers of their memifs.
type attachments struct {
	pods    *podmanager.Manager
	network *ipnet.Network
	unread  *drift.Unread
	splices *splice.Splices
}

// Attachments lists the attachments, of one pod or of all.
func (r *attachments) Attachments(
	_ context.Context, req *operatorv1.AttachmentsRequest,
) (*operatorv1.AttachmentsReply, error) {
	reply := &operatorv1.AttachmentsReply{}
	for _, a := range r.pods.Attachments() {
		if req.Pod != "" && a.Pod.String() != req.Pod {
			continue
		}
		info := attachmentInfo(a)
		info.NotChecked = r.unread.ReasonOf(&a)
		for at, i := range a.Interfaces {
			info.Interfaces[at].Peer = r.peerOf(&a, i)
			info.Interfaces[at].Moving = r.network.Pods.MovingOf(a.Pod, i).Texts()
		}
		reply.Attachments = append(reply.Attachments, info)
	}
	return reply, nil
}

func attachmentOf(k pod.Key) *weftv1.Attachment {
	return &weftv1.Attachment{Network: k.Network, ContainerId: k.ContainerID, IfName: k.IfName}
}

func podOf(p pod.ID) *weftv1.Pod {
	return &weftv1.Pod{Namespace: p.Namespace, Name: p.Name, Uid: p.UID}
}

func attachmentInfo(a pod.Attachment) *operatorv1.AttachmentInfo {
	return &operatorv1.AttachmentInfo{
		Attachment:      attachmentOf(a.Key),
		Pod:             podOf(a.Pod),
		Netns:           a.Netns.Path,
		Created:         timestamppb.New(a.Created),
		AnnotationsFrom: a.AnnotationsFrom,
		Annotations:     pod.ShownAnnotations(a.Annotations),
		Interfaces:      shown.Interfaces(&a),
	}
}

// peerOf describes the peer of a memif on a direct network, or why the memif is not connected; "" for other interfaces.
func (r *attachments) peerOf(a *pod.Attachment, i pod.Interface) string {
	if i.Memif == nil || !i.Memif.IsDirect() {
		return ""
	}
	wanted := pod.RoleServer
	if i.Memif.Role == pod.RoleServer {
		wanted = pod.RoleClient
	}
	b, peer := r.member(i.Network, wanted)
	if b == nil {
		return fmt.Sprintf("not connected: no pod of this node is the %s of network %s", wanted, i.Network)
	}
	client := i
	if wanted == pod.RoleClient {
		client = peer
	}
	return fmt.Sprintf("%s, %s of %s", r.splice(client.Memif, r.restricted(a, i), r.restricted(b, peer)), peer.Name,
		b.Name())
}

// member returns the member of a direct network with a role, or nil. Of two sandboxes of a pod it returns the newer
// one.
func (r *attachments) member(network, role string) (a *pod.Attachment, i pod.Interface) {
	for _, b := range r.pods.Attachments() {
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
func (r *attachments) splice(client *pod.Memif, restricted ...string) string {
	restricted = slices.DeleteFunc(restricted, func(s string) bool { return s == "" })
	if len(restricted) > 0 {
		return "closed, because policies select " + strings.Join(restricted, " and ")
	}
	connected, exists, err := r.splices.State(client.DirectSocket())
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
func (r *attachments) restricted(a *pod.Attachment, i pod.Interface) string {
	if (r.network.Pods.Lists(a.Pod)[i.Name] == policy.Lists{}) {
		return ""
	}
	return fmt.Sprintf("%s of %s", i.Name, a.Name())
}
