package operations

import (
	"context"
	"net/netip"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// resources lists the addresses and devices that pods use.
type resources struct {
	pods    *podmanager.Manager
	network *ipnet.Network
	devices *devicemanager.Manager // nil: no device plugin
}

// Addresses lists pools, and the addresses in use with their pods.
func (r *resources) Addresses(_ context.Context, req *operatorv1.AddressesRequest) (*operatorv1.AddressesReply, error) {
	var only netip.Addr
	if req.Address != "" {
		var err error
		if only, err = netip.ParseAddr(req.Address); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "invalid address %q", req.Address)
		}
	}
	pools, leases := r.network.Networks.Addresses()
	reply := &operatorv1.AddressesReply{}
	for _, p := range pools {
		if !only.IsValid() || p.Prefix.Contains(only) {
			reply.Pools = append(reply.Pools, &operatorv1.Pool{
				Name: p.Name, Prefix: p.Prefix.String(),
				Free: p.Free, Leased: p.Leased, Used: p.Used, Cooling: p.Cooling,
			})
		}
	}
	owners := r.holders()
	for _, l := range leases {
		if only.IsValid() && l.Address != only {
			continue
		}
		lease := &operatorv1.Lease{
			Pool: l.Pool, Address: l.Address.String(), State: string(l.State), Holder: l.Holder,
			Since: stamp(l.Since), FreeAt: stamp(l.FreeAt),
		}
		if owner, ok := owners[l.Holder]; ok {
			lease.Pod = podOf(owner.pod)
			lease.Interface = owner.iface
			lease.Claim = owner.claim
		} else if l.Pod != "" { // it cools down: the attachment is gone
			lease.Pod = podOf(pod.ID{Namespace: l.Namespace, Name: l.Pod})
			lease.Interface = path.Base(l.Holder)
		}
		if claim, is := strings.CutPrefix(l.Holder, pod.IPAMClaimKind); is { // its pod is away
			lease.Claim = claim
		}
		reply.Leases = append(reply.Leases, lease)
	}
	return reply, nil
}

// holder is the interface of a pod that holds an address.
type holder struct {
	pod   pod.ID
	iface string
	claim string // IPAMClaim of the interface, namespace/name; "": none
}

// holders returns the interfaces of pods by the names under which they hold addresses.
func (r *resources) holders() map[string]holder {
	all := map[string]holder{}
	for _, a := range r.pods.Attachments() {
		for _, i := range a.Interfaces {
			h := holder{pod: a.Pod, iface: i.Name}
			if i.IPAMClaim != "" {
				h.claim = a.Pod.Namespace + "/" + i.IPAMClaim
			}
			all[desired.HolderOf(a.Key, i.Name)] = h
		}
	}
	return all
}

// Devices lists the allocations.
func (r *resources) Devices(context.Context, *operatorv1.DevicesRequest) (*operatorv1.DevicesReply, error) {
	if r.devices == nil {
		return &operatorv1.DevicesReply{}, nil
	}
	stats := r.devices.Stats()
	reply := &operatorv1.DevicesReply{Registered: stats.Registered, Free: uint32(stats.Devices["free"])}
	for _, a := range r.devices.Allocations() {
		row := &operatorv1.Allocation{
			Id:        a.ID,
			Socket:    a.Socket,
			Devices:   a.Devices,
			Directory: a.Directory,
			Created:   stamp(a.Created),
			Container: a.Container,
		}
		if !a.Pod.IsZero() {
			row.Pod = podOf(a.Pod)
		}
		reply.Allocations = append(reply.Allocations, row)
	}
	return reply, nil
}
