package podmanager

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// compare names what of the attachment the runtime does not remember. What it remembers beyond that is the work of
// other plugins; a MAC or an MTU that it remembers differently is too, and is judged when the machine has been asked.
func compare(a *pod.Attachment, req *weftv1.CheckRequest) []string {
	var differences []string
	promised := replyOf(a)
	index := make(map[int]uint32) // of a promised interface in what the runtime remembers
	for i, want := range inSandbox(promised) {
		at, has := findInterface(req, want.GetName())
		if has == nil {
			differences = append(differences, fmt.Sprintf("interface %s is missing in prevResult", want.GetName()))
			continue
		}
		index[i] = at
		if has.GetSocketPath() != "" && has.GetSocketPath() != want.GetSocketPath() {
			differences = append(differences, fmt.Sprintf("socket path of interface %s is %s in prevResult, %s was promised",
				want.GetName(), has.GetSocketPath(), want.GetSocketPath()))
		}
	}
	for _, want := range promised.GetIps() {
		if len(promised.GetInterfaces()) == 0 { // addresses for an interface of another plugin
			differences = append(differences, compareIPAM(req, want)...)
			continue
		}
		at, known := index[int(want.GetInterface())]
		if known && !hasIP(req, at, want) {
			differences = append(differences, fmt.Sprintf("address %s of interface %s is missing in prevResult",
				want.GetAddress(), promised.GetInterfaces()[want.GetInterface()].GetName()))
		}
	}
	for _, want := range promised.GetRoutes() {
		if len(promised.GetInterfaces()) > 0 && !hasRoute(req, want) {
			differences = append(differences, fmt.Sprintf("route %s is missing in prevResult", describeRoute(want)))
		}
	}
	return differences
}

// compareIPAM looks for an address on whichever interface the other plugin gave it to, if that says anything.
func compareIPAM(req *weftv1.CheckRequest, want *weftv1.IP) []string {
	has := func(ip *weftv1.IP) bool { return samePrefix(ip.GetAddress(), want.GetAddress()) }
	if len(req.GetIps()) == 0 || slices.ContainsFunc(req.GetIps(), has) {
		return nil
	}
	return []string{fmt.Sprintf("address %s is missing in prevResult", want.GetAddress())}
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
