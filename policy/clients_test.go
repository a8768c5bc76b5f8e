package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func mustRanges(t *testing.T, texts ...string) ClientRanges {
	t.Helper()
	r, err := NewClientRanges(prefixes(texts...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClientRanges(t *testing.T) {
	for _, wrong := range []string{"10.0.0.0/8,11.0.0.0/8", "10.0.0.1/8", "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104"} {
		if r, err := NewClientRanges(prefixes(strings.Split(wrong, ",")...)); err == nil {
			t.Errorf("%s: %v", wrong, r)
		}
	}
	r := mustRanges(t, "fc00::/8", "100.64.0.0/10")
	if got := fmt.Sprint(r.Prefixes()); got != "[100.64.0.0/10 fc00::/8]" {
		t.Errorf("prefixes %s", got)
	}
	for _, c := range []struct{ pods, want string }{
		{"10.244.1.5/32", "100.116.1.5/32"},
		{"10.244.0.0/16", "100.116.0.0/16"},
		{"172.16.0.0/12", "100.80.0.0/12"},
		{"10.0.0.0/9", ""},
		{"fd00:10:244:1::/64", "fc00:10:244:1::/64"},
		{"2001:db8::7/128", "fc01:db8::7/128"},
	} {
		got, ok := r.Of(netip.MustParsePrefix(c.pods))
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("client addresses of %s: %s, want %s", c.pods, got, c.want)
		}
	}
	if got := fmt.Sprint(r.Common(mustRanges(t, "100.64.0.0/10", "fd77::/16")).Prefixes()); got != "[100.64.0.0/10]" {
		t.Errorf("common ranges %s", got)
	}
}

func TestAmbiguousClientAddressesAreNotUsed(t *testing.T) {
	for _, c := range []struct {
		name, pods, nodes, why string // why of IPv4
	}{
		{"unambiguous", "10.244.0.0/16,10.100.0.0/16,fd00::/56", "192.0.2.1", ""},
		{
			"two pools with the same last bits", "10.244.0.0/16,172.52.0.0/16", "192.0.2.1",
			"100.64.0.0/10: pods of several ranges would have the client addresses 100.116.0.0/16",
		},
		{
			"a part of another pool", "10.244.0.0/16,172.52.7.0/24", "192.0.2.1",
			"100.64.0.0/10: pods of several ranges would have the client addresses 100.116.7.0/24",
		},
		{
			"a pool in the range", "100.64.0.0/16", "192.0.2.1",
			"100.64.0.0/10: the client addresses 100.64.0.0/16 overlap the range 100.64.0.0/16 of pods",
		},
		{"a large pool", "10.0.0.0/8", "192.0.2.1", "100.64.0.0/10: it is smaller than the range 10.0.0.0/8 of pods"},
		{
			"nodes that make a large pool together", "10.0.0.0/9,10.128.0.0/9", "192.0.2.1",
			"100.64.0.0/10: it is smaller than the range 10.0.0.0/8 of pods",
		},
		{
			"a node", "10.244.0.0/16", "100.116.3.4",
			"100.64.0.0/10: the client addresses 100.116.0.0/16 have the address 100.116.3.4 of a node",
		},
		{"a node elsewhere in the range", "10.244.0.0/16", "100.64.0.9", ""},
	} {
		m, why := NewClientMap(mustRanges(t, "100.64.0.0/10", "fc00::/8"), prefixes(strings.Split(c.pods, ",")...),
			[]netip.Addr{netip.MustParseAddr(c.nodes)})
		if got := strings.Join(why, "; "); got != c.why {
			t.Errorf("%s: %q, want %q", c.name, got, c.why)
		}
		if _, has := m.Of(netip.MustParsePrefix(strings.Split(c.pods, ",")[0]).Addr()); has != (c.why == "") {
			t.Errorf("%s: has client addresses: %v", c.name, has)
		}
		if got := m.Ranges().Prefixes(); got[len(got)-1] != netip.MustParsePrefix("fc00::/8") {
			t.Errorf("%s: IPv6 has no client addresses", c.name)
		}
	}
}

// The addresses of a prefix as sources are compared with an evaluation of single addresses.
func TestSourcesOfAPrefix(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 5_000 {
		ranges := mustRanges(t, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(random.IntN(4)) << 6}), 10).String())
		pods := make([]netip.Prefix, 1+random.IntN(3))
		for i := range pods {
			pods[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(random.IntN(256)), byte(random.IntN(4))}),
				14+random.IntN(11)).Masked()
		}
		m, why := NewClientMap(ranges, pods, nil)
		if len(why) > 0 {
			continue
		}
		p := netip.PrefixFrom(
			netip.AddrFrom4([4]byte{
				[]byte{10, 100}[random.IntN(2)], byte(random.IntN(256)), byte(random.IntN(4)), byte(random.IntN(256)),
			}),
			random.IntN(33)).Masked()
		sources := m.Sources(p)
		for range 20 {
			pod := pods[random.IntN(len(pods))].Addr().As4()
			pod[3] = byte(random.IntN(256))
			a := netip.AddrFrom4(pod)
			client, has := m.Of(a)
			if !has {
				t.Fatalf("pods %v: %s has no client address", pods, a)
			}
			if back, ok := m.PodOf(client); !ok || back != a {
				t.Fatalf("pods %v: client address %s of %s belongs to %s", pods, client, a, back)
			}
			for _, x := range []netip.Addr{a, client} {
				if got := slices.ContainsFunc(sources, func(s netip.Prefix) bool {
					return s.Contains(x)
				}); got != p.Contains(a) {
					t.Fatalf("ranges %v, pods %v, prefix %s: %s of pod %s is a source: %v", ranges.Prefixes(), pods, p,
						x, a, got)
				}
			}
			other := netip.AddrFrom4([4]byte{
				[]byte{10, 100, 192}[random.IntN(3)], byte(random.IntN(256)), byte(random.IntN(256)), 1,
			})
			if _, isClient := m.PodOf(other); isClient {
				continue
			}
			if got := slices.ContainsFunc(sources, func(s netip.Prefix) bool {
				return s.Contains(other)
			}); got != p.Contains(other) {
				t.Fatalf("ranges %v, pods %v, prefix %s: %s is a source: %v", ranges.Prefixes(), pods, p, other, got)
			}
		}
	}
}
