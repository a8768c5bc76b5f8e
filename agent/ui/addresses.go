package ui

import (
	"net/http"
	"net/netip"

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
	pools := make([]any, 0, len(all.Pools))
	known := map[string]netip.Prefix{}
	for _, p := range all.Pools {
		pools = append(pools, document.Of(p.ProtoReflect()))
		known[p.Name], _ = netip.ParsePrefix(p.Prefix)
	}
	leases := make([]any, 0, len(all.Leases))
	for _, l := range all.Leases {
		doc := document.Of(l.ProtoReflect())
		delete(doc, "pod")
		if name := podName(l.Pod); name != "" {
			doc["pod"] = name
		}
		if offset, ok := offsetIn(known[l.Pool], l.Address); ok {
			doc["offset"] = offset
		}
		leases = append(leases, doc)
	}
	reply(w, map[string]any{"pools": pools, "leases": leases}, nil)
}

// offsetIn returns the position of an address in its pool, if a number of JavaScript can represent it.
func offsetIn(pool netip.Prefix, address string) (uint64, bool) {
	a, err := netip.ParseAddr(address)
	if err != nil || !pool.IsValid() || !pool.Contains(a) {
		return 0, false
	}
	first := pool.Masked().Addr().As16()
	last := a.As16()
	var offset uint64
	for i := range first {
		if offset > 1<<44 {
			return 0, false
		}
		offset = offset<<8 | uint64(last[i]-first[i])
	}
	return offset, offset < 1<<53
}
