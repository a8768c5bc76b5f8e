package linux

import (
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// invalid is a change that makes a valid value invalid, and a part of the error.
type invalid[V any] struct {
	what   string
	change func(v *V)
	want   string
}

// mustReject fails the test unless validate accepts v and rejects it after each change.
func mustReject[V any](t *testing.T, validate func(V) error, v V, changes []invalid[V]) {
	t.Helper()
	if err := validate(v); err != nil {
		t.Errorf("a valid value: %v", err)
	}
	for _, c := range changes {
		changed := v
		c.change(&changed)
		if err := validate(changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.what, err, c.want)
		}
	}
}

// named validates a value under the name that name returns for it.
func named[V any](validate func(string, V) error, name func(V) string) func(V) error {
	return func(v V) error { return validate(name(v), v) }
}

// under validates a value under a fixed name.
func under[V any](validate func(string, V) error, name string) func(V) error {
	return func(v V) error { return validate(name, v) }
}

const longName = "sixteen-bytes-xx"

var (
	address4  = netip.MustParseAddr("10.0.0.1")
	address6  = netip.MustParseAddr("fd00::1")
	mapped    = netip.MustParseAddr("::ffff:10.0.0.1")
	masked    = netip.MustParsePrefix("10.0.0.0/24")
	unmasked  = netip.MustParsePrefix("10.0.0.1/24")
	multicast = netaddr.MAC{1}
)

func TestValidateRejectsAnotherName(t *testing.T) {
	for kind, err := range map[string]error{
		wire.KindNamespace:    validateNamespace("/other", wire.Namespace{Path: "/run/netns/a", Inode: 1}),
		wire.KindTapPeer:      validateTapPeer("other", wire.TapPeer{Interface: "tap-a", Name: "eth0", Alias: alias}),
		wire.KindLink:         validateFoundLink("other", wire.Link{Name: "eth0"}),
		wire.KindLinuxAddress: validateAddress("other", wire.LinuxAddress{On: on, Link: "eth0", Prefix: unmasked}),
		wire.KindLinuxRoute:   validateRoute("other", wire.LinuxRoute{On: on, Link: "eth0", Destination: masked}),
		wire.KindLinuxNeighbour: validateNeighbour("other", wire.LinuxNeighbour{
			On:      on,
			Link:    "eth0",
			Address: address4,
			MAC:     mac1,
		}),
		wire.KindSysctl:     validateSysctl("other", wire.Sysctl{On: on, Name: "net/ipv4/ip_forward", Value: "1"}),
		wire.KindHardening:  validateHardening("other", wire.Hardening{On: on, Link: "eth0"}),
		wire.KindMasquerade: validateMasquerade("other", cluster()),
		wire.KindTunnelNAT:  validateTunnelNAT("other", tunnelFamilies["IPv4"].value()),
		wire.KindUplink:     validateUplink("other", validUplink()),
	} {
		if err == nil || !strings.Contains(err.Error(), "name ") || !strings.Contains(err.Error(), "other") {
			t.Errorf("%s: error %v, want one with the name", kind, err)
		}
	}
}

func TestValidateRejectsInvalidNamespaces(t *testing.T) {
	mustReject(t, named(validateNamespace, func(v wire.Namespace) string { return v.Path }),
		wire.Namespace{Path: "/run/netns/a", Inode: 1}, []invalid[wire.Namespace]{
			{"no path", func(v *wire.Namespace) { v.Path = "" }, "not absolute and clean"},
			{"a relative path", func(v *wire.Namespace) { v.Path = "a" }, "not absolute and clean"},
			{"a path with dots", func(v *wire.Namespace) { v.Path = "/a/../b" }, "not absolute and clean"},
			{"no inode", func(v *wire.Namespace) { v.Inode = 0 }, "inode is missing"},
		})
}

func TestValidateRejectsInvalidTapPeers(t *testing.T) {
	v := wire.TapPeer{Interface: "tap-a", Name: "eth0", Alias: strings.Repeat("a", maxAlias)}
	mustReject(t, under(validateTapPeer, "tap-a"), v, []invalid[wire.TapPeer]{
		{"no alias", func(v *wire.TapPeer) { v.Alias = "" }, "1 to 255 bytes"},
		{"a long alias", func(v *wire.TapPeer) { v.Alias += "a" }, "1 to 255 bytes"},
		{"no link name", func(v *wire.TapPeer) { v.Name = "" }, "1 to 15 bytes"},
		{"a long link name", func(v *wire.TapPeer) { v.Name = longName }, "1 to 15 bytes"},
		{"a multicast MAC", func(v *wire.TapPeer) { v.MAC = multicast }, "not a unicast MAC"},
	})
}

func TestValidateRejectsInvalidVeths(t *testing.T) {
	v := wire.Veth{
		Namespace: "/run/netns/a",
		Name:      "eth1",
		HostName:  hostEnd,
		Alias:     alias,
		MTU:       68,
		RxQueues:  wire.MaxQueues,
		TxQueues:  wire.MaxQueues,
	}
	mustReject(t, under(validateVeth, "pod-a"), v, []invalid[wire.Veth]{
		{"both ends with one name in one namespace", func(v *wire.Veth) {
			v.Namespace = ""
			v.HostName = v.Name
		}, "both ends have the name"},
		{"no alias", func(v *wire.Veth) { v.Alias = "" }, "1 to 255 bytes"},
		{"a long alias", func(v *wire.Veth) { v.Alias = strings.Repeat("a", maxAlias+1) }, "1 to 255 bytes"},
		{"no name in the pod", func(v *wire.Veth) { v.Name = "" }, "1 to 15 bytes"},
		{"a long name in the pod", func(v *wire.Veth) { v.Name = longName }, "1 to 15 bytes"},
		{"no name on the node", func(v *wire.Veth) { v.HostName = "" }, "1 to 15 bytes"},
		{"a long name on the node", func(v *wire.Veth) { v.HostName = longName }, "1 to 15 bytes"},
		{"a multicast MAC in the pod", func(v *wire.Veth) { v.MAC = multicast }, "not a unicast MAC"},
		{"a multicast MAC on the node", func(v *wire.Veth) { v.HostMAC = multicast }, "not a unicast MAC"},
		{"an MTU below the lowest", func(v *wire.Veth) { v.MTU = 67 }, "not within 68 and 65535"},
		{"an MTU above the highest", func(v *wire.Veth) { v.MTU = 65536 }, "not within 68 and 65535"},
		{"a negative number of queues", func(v *wire.Veth) { v.TxQueues = -1 }, "not within 0 and 16"},
		{"too many queues", func(v *wire.Veth) { v.RxQueues = wire.MaxQueues + 1 }, "not within 0 and 16"},
	})
}

func TestValidateRejectsInvalidLinks(t *testing.T) {
	mustReject(t, named(validateFoundLink, func(v wire.Link) string { return v.Name }), wire.Link{Name: "eth0"},
		[]invalid[wire.Link]{
			{"no name", func(v *wire.Link) { v.Name = "" }, "1 to 15 bytes"},
			{"a long name", func(v *wire.Link) { v.Name = longName }, "1 to 15 bytes"},
		})
}

func TestValidateRejectsInvalidVLANs(t *testing.T) {
	v := wire.VLAN{Parent: "eth0", ID: maxVLAN, Name: "eth0.4094", Alias: alias}
	mustReject(t, under(validateVLAN, "a"), v, []invalid[wire.VLAN]{
		{"no ID", func(v *wire.VLAN) { v.ID = 0 }, "VLAN 0 is not within 1 and 4094"},
		{"a reserved ID", func(v *wire.VLAN) { v.ID = 4095 }, "VLAN 4095 is not within 1 and 4094"},
		{"no alias", func(v *wire.VLAN) { v.Alias = "" }, "1 to 255 bytes"},
		{"no name", func(v *wire.VLAN) { v.Name = "" }, "1 to 15 bytes"},
		{"a long name", func(v *wire.VLAN) { v.Name = longName }, "1 to 15 bytes"},
		{"no parent", func(v *wire.VLAN) { v.Parent = "" }, "1 to 15 bytes"},
	})
}

func TestValidateRejectsInvalidAddresses(t *testing.T) {
	name := func(v wire.LinuxAddress) string { return parseRef(wire.LinuxAddressKey(v.On, v.Prefix)).Name }
	prefix := func(text string) func(*wire.LinuxAddress) {
		return func(v *wire.LinuxAddress) { v.Prefix = netip.MustParsePrefix(text) }
	}
	mustReject(t, named(validateAddress, name), wire.LinuxAddress{On: on, Link: "eth0", Prefix: unmasked},
		[]invalid[wire.LinuxAddress]{
			{"no address", func(v *wire.LinuxAddress) { v.Prefix = netip.Prefix{} }, "not a unicast address"},
			{
				"a mapped address", func(v *wire.LinuxAddress) { v.Prefix = netip.PrefixFrom(mapped, 128) },
				"not a unicast address",
			},
			{"an unspecified IPv4 address", prefix("0.0.0.0/0"), "not a unicast address"},
			{"an unspecified IPv6 address", prefix("::/128"), "not a unicast address"},
			{"a multicast IPv4 address", prefix("224.0.0.1/32"), "not a unicast address"},
			{"a multicast IPv6 address", prefix("ff02::1/128"), "not a unicast address"},
			{
				"an invalid key of the link's object", func(v *wire.LinuxAddress) { v.On = "eth0" },
				"key of the link's object",
			},
			{"no link name", func(v *wire.LinuxAddress) { v.Link = "" }, "1 to 15 bytes"},
		})
}

func TestValidateRejectsInvalidRoutes(t *testing.T) {
	name := func(v wire.LinuxRoute) string { return parseRef(wire.LinuxRouteKey(v.On, v.Destination)).Name }
	v := wire.LinuxRoute{On: on, Link: "eth0", Destination: masked, Gateway: address4, Source: address4, MTU: 1500}
	mustReject(t, named(validateRoute, name), v, []invalid[wire.LinuxRoute]{
		{"no destination", func(v *wire.LinuxRoute) { v.Destination = netip.Prefix{} }, "not masked"},
		{"a destination that is not masked", func(v *wire.LinuxRoute) { v.Destination = unmasked }, "not masked"},
		{"a gateway of the other family", func(v *wire.LinuxRoute) { v.Gateway = address6 }, "different families"},
		{"a source of the other family", func(v *wire.LinuxRoute) { v.Source = address6 }, "different families"},
		{"a negative MTU", func(v *wire.LinuxRoute) { v.MTU = -1 }, "negative"},
		{"an invalid key of the link's object", func(v *wire.LinuxRoute) { v.On = "eth0" }, "key of the link's object"},
		{"a long link name", func(v *wire.LinuxRoute) { v.Link = longName }, "1 to 15 bytes"},
	})
}

func TestValidateRejectsInvalidNeighbours(t *testing.T) {
	name := func(v wire.LinuxNeighbour) string { return parseRef(wire.LinuxNeighbourKey(v.On, v.Address)).Name }
	address := func(a netip.Addr) func(*wire.LinuxNeighbour) {
		return func(v *wire.LinuxNeighbour) { v.Address = a }
	}
	mustReject(t, named(validateNeighbour, name),
		wire.LinuxNeighbour{On: on, Link: "eth0", Address: address6, MAC: mac1}, []invalid[wire.LinuxNeighbour]{
			{"no address", address(netip.Addr{}), "not a unicast address"},
			{"a mapped address", address(mapped), "not a unicast address"},
			{"an unspecified address", address(netip.IPv6Unspecified()), "not a unicast address"},
			{"a multicast address", address(netip.IPv6LinkLocalAllNodes()), "not a unicast address"},
			{"an address with a zone", address(netip.MustParseAddr("fe80::1%eth0")), "not a unicast address"},
			{"no MAC", func(v *wire.LinuxNeighbour) { v.MAC = netaddr.MAC{} }, "not a unicast MAC"},
			{"a multicast MAC", func(v *wire.LinuxNeighbour) { v.MAC = multicast }, "not a unicast MAC"},
			{
				"an invalid key of the link's object", func(v *wire.LinuxNeighbour) { v.On = "eth0" },
				"key of the link's object",
			},
			{"no link name", func(v *wire.LinuxNeighbour) { v.Link = "" }, "1 to 15 bytes"},
		})
}

func TestValidateRejectsInvalidSysctls(t *testing.T) {
	name := func(v wire.Sysctl) string { return parseRef(wire.SysctlKey(v.On, v.Name)).Name }
	v := wire.Sysctl{On: on, Name: "net/ipv4/conf/eth0/rp_filter", Value: "4096 87380"}
	mustReject(t, named(validateSysctl, name), v, []invalid[wire.Sysctl]{
		{"a setting outside net", func(v *wire.Sysctl) {
			v.Name = "kernel/core_pattern"
			v.Value = "|/bin/sh"
		}, "not a clean path below net"},
		{
			"a path with dots", func(v *wire.Sysctl) { v.Name = "net/../kernel/core_pattern" },
			"not a clean path below net",
		},
		{"net itself", func(v *wire.Sysctl) { v.Name = "net/" }, "not a clean path below net"},
		{"no value", func(v *wire.Sysctl) { v.Value = "" }, "is empty or has extra white space"},
		{"a value of two lines", func(v *wire.Sysctl) { v.Value = "0\n1" }, "is empty or has extra white space"},
		{"a value with two spaces", func(v *wire.Sysctl) { v.Value = "0  1" }, "is empty or has extra white space"},
		{"an invalid key of the link's object", func(v *wire.Sysctl) { v.On = "eth0" }, "not of the form kind/name"},
	})
}

func TestValidateRejectsInvalidHardenings(t *testing.T) {
	mustReject(t, named(validateHardening, func(v wire.Hardening) string { return v.On }),
		wire.Hardening{On: on, Link: "eth0"}, []invalid[wire.Hardening]{
			{
				"an invalid key of the link's object", func(v *wire.Hardening) { v.On = "eth0" },
				"not of the form kind/name",
			},
			{"no link name", func(v *wire.Hardening) { v.Link = "" }, "1 to 15 bytes"},
			{"a long link name", func(v *wire.Hardening) { v.Link = longName }, "1 to 15 bytes"},
		})
}

func TestValidateRejectsInvalidFiles(t *testing.T) {
	const name = "/run/a/f"
	v := wire.File{Type: wire.RegularFile, Mode: 0o644, Content: "text", On: wire.FileKey("/run/a")}
	mustReject(t, under(validateFile, name), v, []invalid[wire.File]{
		{"another type", func(v *wire.File) {
			v.Type = "pipe"
			v.Content = ""
		}, `unknown type "pipe"`},
		{"setuid", func(v *wire.File) { v.Mode |= fs.ModeSetuid }, "bits other than permissions"},
		{"setgid of a regular file", func(v *wire.File) { v.Mode |= fs.ModeSetgid }, "bits other than permissions"},
		{"a negative owner", func(v *wire.File) { v.UID = -1 }, "not a valid ID"},
		{"a negative group", func(v *wire.File) { v.GID = -1 }, "not a valid ID"},
		{"an owner above the highest", func(v *wire.File) { v.UID = 1<<32 - 1 }, "not a valid ID"},
		{"a group above the highest", func(v *wire.File) { v.GID = 1<<32 - 1 }, "not a valid ID"},
		{"content and secret", func(v *wire.File) { v.Secret = "s3cret" }, "not both"},
		{"a socket with content", func(v *wire.File) { v.Type = wire.Socket }, "has no content"},
		{"a directory with a secret", func(v *wire.File) {
			v.Type = wire.Directory
			v.Content = ""
			v.Secret = "s3cret"
		}, "has no content"},
		{"an invalid dependency", func(v *wire.File) { v.On = "a" }, "dependency of the file"},
	})
	mustReject(t, under(validateFile, name), wire.File{Type: wire.Directory, Mode: 0o750 | fs.ModeSetgid}, nil)
	for what, c := range map[string]struct{ name, want string }{
		"a relative path":                 {"run/a", "not an absolute, clean path"},
		"a path with dots":                {"/run/a/../b", "not an absolute, clean path"},
		"a path with a NUL":               {"/run/a\x00b", "not an absolute, clean path"},
		"the root":                        {"/", "in the root directory"},
		"a file in the root directory":    {"/etc", "in the root directory"},
		"no room for the temporary name":  {"/run/" + strings.Repeat("n", maxBase+1), "too long"},
		"a path longer than the kernel's": {strings.Repeat("/n", 2048), "too long"},
	} {
		if err := validateFile(c.name, v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", what, err, c.want)
		}
	}
	v.Secret = "s3cret"
	if err := validateFile(name, v); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error has the secret: %v", err)
	}
}

func TestValidateRejectsInvalidMasquerades(t *testing.T) {
	v := cluster()
	v.Guard = wire.TunnelGuard{Port: tunnelPort, Link: tunnelLink, Nodes: prefixes("192.0.2.1/32")}
	mustReject(t, under(validateMasquerade, tableName), v, []invalid[wire.Masquerade]{
		{"no link", func(v *wire.Masquerade) { v.Link = "" }, "1 to 15 bytes"},
		{"a long link name", func(v *wire.Masquerade) { v.Link = longName }, "1 to 15 bytes"},
		{"a long name of the tunnel link", func(v *wire.Masquerade) { v.Guard.Link = longName }, "more than 15 bytes"},
		{
			"one link for pods and tunnels", func(v *wire.Masquerade) { v.Guard.Link = v.Link },
			"is the link of the pods",
		},
		{"pods that are not masked", func(v *wire.Masquerade) { v.Pods = prefixes("10.1.0.1/24") }, "not masked"},
		{"an invalid prefix of pods", func(v *wire.Masquerade) { v.Pods = []netip.Prefix{{}} }, "not masked"},
		{
			"a mapped address", func(v *wire.Masquerade) { v.Exclude = []netip.Prefix{netip.PrefixFrom(mapped, 128)} },
			"not masked",
		},
		{
			"nodes that are not masked", func(v *wire.Masquerade) { v.Guard.Nodes = prefixes("192.0.2.1/24") },
			"not masked",
		},
	})
}

func TestValidateRejectsInvalidTunnelNATs(t *testing.T) {
	six := tunnelFamilies["IPv6"]
	six.inner = "fd77:6566:7400::2"
	four := tunnelFamilies["IPv4"].value()
	peers := func(list ...string) func(*wire.TunnelNAT) {
		return func(v *wire.TunnelNAT) {
			v.Peers = nil
			for _, a := range list {
				v.Peers = append(v.Peers, netip.MustParseAddr(a))
			}
		}
	}
	vnis := func(list ...uint32) func(*wire.TunnelNAT) {
		return func(v *wire.TunnelNAT) { v.VNIs = list }
	}
	mustReject(t, under(validateTunnelNAT, tableName), four, []invalid[wire.TunnelNAT]{
		{"VNI 0", vnis(0, 10), "VNI 0 is not between"},
		{"a VNI of 25 bits", vnis(10, 1<<24), "VNI 16777216 is not between"},
		{"a VNI twice", vnis(10, 10), "duplicates"},
		{"VNIs that are not sorted", vnis(11, 10), "not sorted"},
		{"no link", func(v *wire.TunnelNAT) { v.Link = "" }, "1 to 15 bytes"},
		{"a long link name", func(v *wire.TunnelNAT) { v.Link = longName }, "1 to 15 bytes"},
		{"no port", func(v *wire.TunnelNAT) { v.Port = 0 }, "UDP port is missing"},
		{"no inner address", func(v *wire.TunnelNAT) { v.Inner = netip.Addr{} }, "is invalid"},
		{"no node", func(v *wire.TunnelNAT) { v.Node = netip.Addr{} }, "is invalid"},
		{"a node of the other family", func(v *wire.TunnelNAT) { v.Node = address6 }, "another family"},
		{"a peer of the other family", peers("2001:db8::1"), "another family"},
		{"a mapped peer", peers("::ffff:192.0.2.2"), "is invalid"},
		{"one address inside and outside", func(v *wire.TunnelNAT) { v.Inner = v.Node }, "must differ"},
		{"the node as a peer", peers(four.Node.String()), "must differ"},
		{"the inner address as a peer", peers(four.Inner.String()), "must differ"},
		{"a peer twice", peers("192.0.2.2", "192.0.2.2"), "duplicates"},
		{"peers that are not sorted", peers("192.0.2.3", "192.0.2.2"), "not sorted"},
		{"an inner address with another checksum", func(v *wire.TunnelNAT) { *v = six.value() }, "another checksum"},
		{
			"an address with a zone", func(v *wire.TunnelNAT) { *v = six.value(); v.Node = v.Node.WithZone("eth0") },
			"has a zone",
		},
	})
}

func validUplink() wire.Uplink {
	return wire.Uplink{
		Card: wire.Card{Link: cardName, Addresses: []wire.CardAddress{{Prefix: netip.MustParsePrefix("192.0.2.1/24")}}},
		On:   wire.VethKey("a"), To: cardLink0, MAC: mac1, Gateways: []netip.Addr{netip.MustParseAddr("169.254.43.2")},
	}
}

func TestValidateRejectsInvalidUplinks(t *testing.T) {
	mustReject(t, named(validateUplink, func(v wire.Uplink) string { return v.Card.Link }), validUplink(),
		[]invalid[wire.Uplink]{
			{"a card as its own link", func(v *wire.Uplink) { v.To = cardName }, "is also the link"},
			{"a card without an address", func(v *wire.Uplink) { v.Card.Addresses = nil }, "has no address"},
			{"no MAC", func(v *wire.Uplink) { v.MAC = netaddr.MAC{} }, "not a unicast MAC"},
			{"a multicast MAC", func(v *wire.Uplink) { v.MAC = multicast }, "not a unicast MAC"},
			{"no gateway", func(v *wire.Uplink) { v.Gateways = nil }, "no gateway of family ip4"},
			{"no gateway of the second family", func(v *wire.Uplink) {
				v.Card.Addresses = append(slices.Clone(v.Card.Addresses), wire.CardAddress{
					Prefix: netip.PrefixFrom(address6, 64),
				})
			}, "no gateway of family ip6"},
			{"drift", func(v *wire.Uplink) { v.Drift = "anything" }, "cannot be desired"},
			{
				"a route that is not masked",
				func(v *wire.Uplink) { v.Card.Routes = []wire.CardRoute{{Destination: unmasked}} }, "not masked",
			},
			{
				"a route without destination", func(v *wire.Uplink) { v.Card.Routes = make([]wire.CardRoute, 1) },
				"not masked",
			},
			{
				"an invalid key of the link's object", func(v *wire.Uplink) { v.On = "eth0" },
				"not of the form kind/name",
			},
			{
				"an invalid key of a dependency", func(v *wire.Uplink) { v.Needs = []string{"nothing"} },
				"not of the form kind/name",
			},
			{"no link name", func(v *wire.Uplink) { v.To = "" }, "1 to 15 bytes"},
			{"a long name of the card", func(v *wire.Uplink) { v.Card.Link = longName }, "1 to 15 bytes"},
		})
}
