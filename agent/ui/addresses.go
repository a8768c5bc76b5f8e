package ui

import (
	"net/http"
	"net/netip"
	"sort"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// addresses lists pools and leases; leases have the pod that owns the address, and the pod's interface.
func (a *API) addresses(w http.ResponseWriter, r *http.Request) {
	all, err := a.Operations.Addresses(r.Context(), &operatorv1.AddressesRequest{})
	if err != nil {
		reply(w, nil, err)
		return
	}
	attached, err := a.Operations.Attachments(r.Context(), &operatorv1.AttachmentsRequest{})
	if err != nil {
		reply(w, nil, err)
		return
	}
	owners := ownersOf(attached.Attachments)
	pools := make([]any, 0, len(all.Pools))
	known := map[string]netip.Prefix{}
	for _, p := range all.Pools {
		pools = append(pools, document.Of(p.ProtoReflect()))
		known[p.Name], _ = netip.ParsePrefix(p.Prefix)
	}
	leases := make([]any, 0, len(all.Leases))
	for _, l := range all.Leases {
		doc := document.Of(l.ProtoReflect())
		if o, ok := owners[ownerKey{l.Pool, l.Address}]; ok && l.State == "used" {
			doc["pod"], doc["interface"] = o.pod, o.nic
		} else if o, ok := owners[ownerKey{"", l.Address}]; ok && l.State == "used" {
			doc["pod"], doc["interface"] = o.pod, o.nic
		}
		if offset, ok := offsetIn(known[l.Pool], l.Address); ok {
			doc["offset"] = offset
		}
		leases = append(leases, doc)
	}
	reply(w, map[string]any{"pools": pools, "leases": leases}, nil)
}

// ownerKey is an address, and its network if several networks have it.
type ownerKey struct{ network, address string }

type owner struct{ pod, nic string }

func ownersOf(attached []*operatorv1.AttachmentInfo) map[ownerKey]owner {
	owners := map[ownerKey]owner{}
	sort.SliceStable(attached, func(i, j int) bool {
		return attached[i].Attachment.GetContainerId() < attached[j].Attachment.GetContainerId()
	})
	for _, at := range attached {
		for _, i := range at.Interfaces {
			for _, address := range i.Addresses {
				prefix, err := netip.ParsePrefix(address)
				if err != nil {
					continue
				}
				o := owner{podName(at.Pod), i.Name}
				owners[ownerKey{i.Network, prefix.Addr().String()}] = o
				if i.Network == "" || i.Network == "default" {
					owners[ownerKey{"", prefix.Addr().String()}] = o
				}
			}
		}
	}
	return owners
}

// offsetIn returns the position of an address in its pool, if a number of JavaScript can represent it.
func offsetIn(pool netip.Prefix, address string) (uint64, bool) {
	a, err := netip.ParseAddr(address)
	if err != nil || !pool.IsValid() || !pool.Contains(a) {
		return 0, false
	}
	first, last := pool.Masked().Addr().As16(), a.As16()
	var offset uint64
	for i := range first {
		if offset > 1<<44 {
			return 0, false
		}
		offset = offset<<8 | uint64(last[i]-first[i])
	}
	return offset, offset < 1<<53
}
