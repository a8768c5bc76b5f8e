package podmanager

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// compare names what the runtime remembers differently from the attachment. What it
// remembers beyond that is the work of later plugins.
func compare(a *pod.Attachment, req *weftv1.CheckRequest) []string {
	var differences []string
	promised := replyOf(a)
	index := make(map[int]uint32) // of a promised interface in what the runtime remembers
	for i, want := range promised.GetInterfaces() {
		at, has := findInterface(req, want.GetName())
		if has == nil {
			differences = append(differences, fmt.Sprintf("interface %s is missing in prevResult", want.GetName()))
			continue
		}
		index[i] = at
		differences = append(differences, compareInterface(want, has)...)
	}
	for _, want := range promised.GetIps() {
		at, known := index[int(want.GetInterface())]
		if known && !hasIP(req, at, want) {
			differences = append(differences, fmt.Sprintf("address %s of interface %s is missing in prevResult",
				want.GetAddress(), promised.GetInterfaces()[want.GetInterface()].GetName()))
		}
	}
	for _, want := range promised.GetRoutes() {
		if !hasRoute(req, want) {
			differences = append(differences, fmt.Sprintf("route %s is missing in prevResult", describeRoute(want)))
		}
	}
	return differences
}

// findInterface finds an interface in the sandbox by its name.
func findInterface(req *weftv1.CheckRequest, name string) (uint32, *weftv1.Interface) {
	for i, in := range req.GetInterfaces() {
		if in.GetName() == name && in.GetSandbox() != "" {
			return uint32(i), in
		}
	}
	return 0, nil
}

// compareInterface compares what both sides state: results of old versions have no MTU.
func compareInterface(want, has *weftv1.Interface) []string {
	var differences []string
	differ := func(what, promised, remembered string) {
		differences = append(differences,
			fmt.Sprintf("%s of interface %s is %s in prevResult, %s was promised", what, want.GetName(), remembered, promised))
	}
	if has.GetMac() != "" && !strings.EqualFold(has.GetMac(), want.GetMac()) {
		differ("mac", want.GetMac(), has.GetMac())
	}
	if has.GetMtu() != 0 && has.GetMtu() != want.GetMtu() {
		differ("mtu", fmt.Sprint(want.GetMtu()), fmt.Sprint(has.GetMtu()))
	}
	if has.GetSocketPath() != "" && has.GetSocketPath() != want.GetSocketPath() {
		differ("socket path", want.GetSocketPath(), has.GetSocketPath())
	}
	return differences
}

func hasIP(req *weftv1.CheckRequest, at uint32, want *weftv1.IP) bool {
	for _, ip := range req.GetIps() {
		if ip.GetInterface() == at && samePrefix(ip.GetAddress(), want.GetAddress()) {
			return true
		}
	}
	return false
}

func hasRoute(req *weftv1.CheckRequest, want *weftv1.Route) bool {
	for _, r := range req.GetRoutes() {
		if samePrefix(r.GetDestination(), want.GetDestination()) && sameAddr(r.GetGateway(), want.GetGateway()) {
			return true
		}
	}
	return false
}

// samePrefix compares values, not texts: IPv6 has many forms.
func samePrefix(a, b string) bool {
	x, errX := netip.ParsePrefix(a)
	y, errY := netip.ParsePrefix(b)
	return errX == nil && errY == nil && x == y
}

func sameAddr(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}

func describeRoute(r *weftv1.Route) string {
	if r.GetGateway() == "" {
		return r.GetDestination()
	}
	return r.GetDestination() + " via " + r.GetGateway()
}
