package policies

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// departed are pods that have ended or were deleted, with the addresses that they had: EndpointSlices may refer to them
// for a while. The zero value has no pods.
type departed struct {
	addresses map[types.UID][]netip.Addr
	at        map[netip.Addr]map[types.UID]struct{}
	limit     int // of the pods; more are swept
}

// departedLimit is the number of pods that are kept although no EndpointSlice refers to them: it may be shown later.
// They take about 2 MB.
const departedLimit = 8192

func (d *departed) add(uid types.UID, addresses []netip.Addr) {
	if d.addresses == nil {
		d.addresses = make(map[types.UID][]netip.Addr)
		d.at = make(map[netip.Addr]map[types.UID]struct{})
		d.limit = departedLimit
	}
	for _, a := range addresses {
		if slices.Contains(d.addresses[uid], a) {
			continue
		}
		d.addresses[uid] = append(d.addresses[uid], a)
		if d.at[a] == nil {
			d.at[a] = make(map[types.UID]struct{})
		}
		d.at[a][uid] = struct{}{}
	}
}

// left reports whether a pod had an address and is gone.
func (d *departed) left(uid types.UID, a netip.Addr) bool {
	return slices.Contains(d.addresses[uid], a)
}

// sweep forgets pods that are not used, if there are too many.
func (d *departed) sweep(isUsed func(types.UID) bool) {
	if len(d.addresses) <= d.limit {
		return
	}
	for uid, addresses := range d.addresses {
		if isUsed(uid) {
			continue
		}
		delete(d.addresses, uid)
		for _, a := range addresses {
			if delete(d.at[a], uid); len(d.at[a]) == 0 {
				delete(d.at, a)
			}
		}
	}
	d.limit = max(departedLimit, 2*len(d.addresses)) // a sweep is worth its time
}
