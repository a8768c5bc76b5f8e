package pod

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

// longLists are the lists of a request by the path of their field, each with a request that has one of a length.
var longLists = map[string]struct {
	most int
	fill func(r *Requested, count int)
}{
	"Pools": {
		MaxPools, func(r *Requested, count int) { r.Pools = slices.Repeat([]string{"a"}, count) },
	},
	"Options.Routes": {
		MaxRoutes, func(r *Requested, count int) {
			r.Options.Routes = nil
			for n := range count {
				to := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16)
				r.Options.Routes = append(r.Options.Routes, RouteRequest{To: to})
			}
		},
	},
	"Options.Moving.Addresses": {
		maxAllowed, func(r *Requested, count int) {
			r.Options.Moving.Addresses = slices.Repeat([]netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, count)
		},
	},
	"Options.Moving.VirtualRouters": {
		maxAllowed, func(r *Requested, count int) {
			r.Options.Moving.VirtualRouters = nil
			for id := range count {
				r.Options.Moving.VirtualRouters = append(r.Options.Moving.VirtualRouters, id+1)
			}
		},
	},
	"Options.RoutedPrefixes": {
		maxRouted, func(r *Requested, count int) {
			r.Options.RoutedPrefixes = nil
			for n := range count {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 60, byte(n), 0}), 24)
				r.Options.RoutedPrefixes = append(r.Options.RoutedPrefixes, p)
			}
		},
	},
	"Options.VLANs": {
		maxVLANs, func(r *Requested, count int) {
			r.Options.VLANs = nil
			for id := range count {
				r.Options.VLANs = append(r.Options.VLANs, netaddr.VLANRange{First: id + 1, Last: id + 1})
			}
		},
	},
	"Delegation.Routes": {
		MaxRoutes, func(r *Requested, count int) { r.Delegation.Routes = make([]Route, count) },
	},
	"Delegation.DNS.Nameservers": {
		MaxDNS, func(r *Requested, count int) { r.Delegation.DNS.Nameservers = slices.Repeat([]string{"a"}, count) },
	},
	"Delegation.DNS.Search": {
		MaxDNS, func(r *Requested, count int) { r.Delegation.DNS.Search = slices.Repeat([]string{"a"}, count) },
	},
	"Delegation.DNS.Options": {
		MaxDNS, func(r *Requested, count int) { r.Delegation.DNS.Options = slices.Repeat([]string{"a"}, count) },
	},
}

// ofFamilies are the lists with at most one element of each family, which the parser of requests checks.
var ofFamilies = []string{
	"Addresses", "Options.AddressRequest.IPs", "Options.Gateway.Addresses", "Delegated", "DelegatedGateways",
}

// Each list of a request has a limit. The test finds the lists in the type, so that a new one needs a limit too.
func TestListsOfARequestAreBounded(t *testing.T) {
	lists := slicesIn(reflect.TypeFor[Requested](), "")
	for _, path := range lists {
		list, known := longLists[path]
		if !known {
			if !slices.Contains(ofFamilies, path) {
				t.Errorf("list %s has no limit", path)
			}
			continue
		}
		var r Requested
		list.fill(&r, list.most)
		if err := r.Validate(); err != nil {
			t.Errorf("%s with %d: %v", path, list.most, err)
		}
		list.fill(&r, list.most+1)
		checkLimit(t, path, &r)
	}
	if len(lists) != len(longLists)+len(ofFamilies) {
		t.Errorf("lists of a request: %v", lists)
	}
}

func TestTextsOfAResolverAreBounded(t *testing.T) {
	long := strings.Repeat("x", MaxDNSText+1)
	for name, dns := range map[string]DNS{
		"name server": {Nameservers: []string{"10.0.0.1", long}}, "domain": {Domain: long},
		"search domain": {Search: []string{long}}, "option": {Options: []string{long}},
	} {
		checkLimit(t, name, &Requested{Delegation: Delegation{DNS: dns}})
	}
	if err := (Delegation{DNS: DNS{Domain: long[1:]}}).Validate(); err != nil {
		t.Error(err)
	}
}

// checkLimit checks that a request is rejected, by itself and in each event that has it.
func checkLimit(t *testing.T, name string, r *Requested) {
	t.Helper()
	key := Key{Network: "weft", ContainerID: "c1", IfName: "eth0"}
	for of, err := range map[string]error{
		"the request":   r.Validate(),
		"a Request":     (&Request{Key: key, Netns: Netns{Path: "/run/netns/a", Inode: 1}, Requested: *r}).Validate(),
		"an AddressPod": (&AddressPod{Key: key, Requested: *r}).Validate(),
	} {
		refusal, is := errors.AsType[*Error](err)
		if !is || refusal.Code != CodeInvalidConfig || !strings.Contains(refusal.Error(), "are possible") {
			t.Errorf("%s of %s: error %v", name, of, err)
		}
	}
}

// slicesIn returns the paths of the slices in a struct.
func slicesIn(in reflect.Type, path string) (paths []string) {
	for i := range in.NumField() {
		f := in.Field(i)
		name := strings.TrimPrefix(path+"."+f.Name, ".")
		switch {
		case f.Type == reflect.TypeFor[netip.Addr](), f.Type == reflect.TypeFor[netip.Prefix]():
		case f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map:
			paths = append(paths, name)
		case f.Type.Kind() == reflect.Struct:
			paths = append(paths, slicesIn(f.Type, name)...)
		}
	}
	return paths
}
