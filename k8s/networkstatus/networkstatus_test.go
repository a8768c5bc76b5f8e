package networkstatus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/pod"
)

// wired is a pod's attachment with an interface of each kind.
func wired(mode string) pod.Attachment {
	prefix := netip.MustParsePrefix
	addr := netip.MustParseAddr
	return pod.Attachment{
		Key:     pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"},
		Mode:    mode,
		Created: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Pod:     pod.ID{Namespace: "default", Name: "web", UID: "1"},
		Interfaces: []pod.Interface{
			{
				Name:      "eth0",
				Type:      "tap",
				MAC:       netaddr.MAC{2, 0, 0, 0, 0, 1},
				MTU:       1450,
				Addresses: []netip.Prefix{prefix("10.1.0.2/32"), prefix("fd00::2/128")},
				Gateways:  []netip.Addr{addr("169.254.1.1"), addr("fe80::1")},
			},
			{Name: "s1", Type: "veth", Network: "stub", MAC: netaddr.MAC{2, 0, 0, 0, 0, 2}, MTU: 1500},
			{
				Name:       "net1",
				Type:       "memif",
				Network:    "blue",
				MAC:        netaddr.MAC{2, 0, 0, 0, 0, 3},
				MTU:        1400,
				Definition: "infra/fast",
				Addresses:  []netip.Prefix{prefix("10.5.0.2/24")}, Gateways: []netip.Addr{{}},
				DNS:   pod.DNS{Nameservers: []string{"10.5.0.53"}},
				Memif: &pod.Memif{SocketPath: "/run/weft/memif/abc/memif.sock", Mode: "ethernet", ID: 1},
			},
		},
		Delegation: pod.Delegation{DNS: pod.DNS{Nameservers: []string{"10.96.0.10"}}},
	}
}

const wiredStatus = `[
    {
        "name": "weft",
        "interface": "eth0",
        "ips": [
            "10.1.0.2",
            "fd00::2"
        ],
        "mac": "02:00:00:00:00:01",
        "mtu": 1450,
        "default": true,
        "dns": {
            "nameservers": [
                "10.96.0.10"
            ]
        },
        "gateway": [
            "169.254.1.1",
            "fe80::1"
        ]
    },
    {
        "name": "stub",
        "interface": "s1",
        "mac": "02:00:00:00:00:02",
        "mtu": 1500,
        "dns": {}
    },
    {
        "name": "infra/fast",
        "interface": "net1",
        "ips": [
            "10.5.0.2"
        ],
        "mac": "02:00:00:00:00:03",
        "mtu": 1400,
        "dns": {
            "nameservers": [
                "10.5.0.53"
            ]
        },
        "device-info": {
            "type": "memif",
            "version": "1.1.0",
            "memif": {
                "role": "slave",
                "path": "/run/weft/memif/abc/memif.sock",
                "mode": "ethernet"
            }
        }
    }
]`

func TestTheStatusListsThePodsInterfaces(t *testing.T) {
	text, ours := networkstatus.Of([]pod.Attachment{wired("primary")})
	if diff := cmp.Diff(wiredStatus, text); !ours || diff != "" {
		t.Errorf("ours: %v (-want +got):\n%s", ours, diff)
	}
}

func TestTheStatusHasThePodsNewestSandbox(t *testing.T) {
	old := wired("primary")
	fresh := wired("primary")
	fresh.Key.ContainerID = "c2"
	fresh.Created = fresh.Created.Add(time.Second)
	fresh.Interfaces = fresh.Interfaces[:1]
	for _, list := range [][]pod.Attachment{{old, fresh}, {fresh, old}} {
		text, ours := networkstatus.Of(list)
		var status []map[string]any
		if err := json.Unmarshal([]byte(text), &status); err != nil || !ours || len(status) != 1 {
			t.Errorf("status %s, %v", text, err)
		}
	}
}

func TestTheStatusIsNotWrittenWhenAnotherPluginWritesIt(t *testing.T) {
	chained := wired("chained")
	delegate := wired("delegate")
	unknown := wired("")
	alone := wired("ipam")
	bare := wired("chained")
	chained.Interfaces = chained.Interfaces[1:2]
	bare.Interfaces = nil
	delegate.Key.IfName = "net1"
	unknown.Key.IfName = "net1"
	kept := wired("") // of a state file that knows no mode
	for name, tt := range map[string]struct {
		attachments []pod.Attachment
		interfaces  int // 0: it is not Weft's to write
	}{
		"main":                            {[]pod.Attachment{wired("primary")}, 3},
		"main, the mode is not known":     {[]pod.Attachment{kept}, 3},
		"behind another plugin":           {[]pod.Attachment{chained}, 2},
		"behind another, with nothing":    {[]pod.Attachment{bare}, 0},
		"addresses for another":           {[]pod.Attachment{alone}, 0},
		"called by another":               {[]pod.Attachment{delegate}, 0},
		"called by another, not known so": {[]pod.Attachment{unknown}, 0},
		"main, under Multus":              {[]pod.Attachment{wired("primary"), delegate}, 0},
		"none":                            {nil, 0},
	} {
		text, ours := networkstatus.Of(tt.attachments)
		var status []struct {
			Interface string
			Default   bool
		}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &status); err != nil {
				t.Fatal(err)
			}
		}
		if ours != (tt.interfaces > 0) || len(status) != tt.interfaces ||
			ours && (!status[0].Default || status[0].Interface != "eth0") {
			t.Errorf("%s: ours: %v, status %+v, want %d interfaces", name, ours, status, tt.interfaces)
		}
	}
}

func TestAddressesOfAnInterfaceAreReadFromTheStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		text, on, want string
	}{
		"written by Weft":   {wiredStatus, "eth0", "[10.1.0.2 fd00::2] <nil>"},
		"without addresses": {wiredStatus, "s1", "[] <nil>"},
		"not there":         {wiredStatus, "t1", "[] it has no interface t1"},
		"written by a delegate": {
			`[{"name": "blue", "interface": "net1", "ips": ["10.5.0.2"], "mtu": "no number"}]`, "net1",
			"[10.5.0.2] <nil>",
		},
		"no addresses at all": {
			`[{"interface": "t1", "ips": ["t1"]}]`, "t1",
			`[] its annotation k8s.v1.cni.cncf.io/network-status: ParseAddr("t1"): unable to parse IP`,
		},
	} {
		addresses, err := networkstatus.AddressesOn(map[string]string{networkstatus.Annotation: tt.text}, tt.on)
		if got := fmt.Sprint(addresses, err); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if _, err := networkstatus.AddressesOn(nil, "eth0"); !errors.Is(err, networkstatus.ErrNone) {
		t.Errorf("without the annotation: error %v", err)
	}
}

// The ends of a direct network are not on the dataplane's socket.
func TestEndsOfADirectNetworkHaveTheirOwnSocketsAndRoles(t *testing.T) {
	a := pod.Attachment{Key: pod.Key{Network: "weft", ContainerID: "c", IfName: "eth0"}, Interfaces: []pod.Interface{
		{Name: "eth0", Type: "tap", MAC: netaddr.MAC{2, 0, 0, 0, 0, 1}, MTU: 1400},
		{
			Name:    "m1",
			Type:    "memif",
			Network: "pair",
			Memif: &pod.Memif{
				SocketPath: "/run/weft/memif/abc/memif.sock",
				Mode:       "ethernet",
				ID:         1,
				Role:       pod.RoleClient,
			},
		},
		{
			Name:    "m2",
			Type:    "memif",
			Network: "other",
			Memif: &pod.Memif{
				SocketPath: "/run/weft/memif/abc/memif.sock",
				Mode:       "ethernet",
				ID:         2,
				Role:       pod.RoleServer,
			},
		},
	}}
	text, _ := networkstatus.Of([]pod.Attachment{a})
	plain := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		`"memif": { "role": "slave", "path": "/run/weft/memif/abc/d1.sock", "mode": "ethernet" }`,
		`"memif": { "role": "master", "path": "@weft/m2", "mode": "ethernet" }`,
	} {
		if !strings.Contains(plain, want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
}
