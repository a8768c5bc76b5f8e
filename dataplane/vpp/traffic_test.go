package vpp

import (
	"maps"
	"strings"
	"testing"

	"github.com/weftnet/weft/wire"
)

// ofVPP is how VPP 25.10 writes its table.
const ofVPP = `              Name               Idx    State  MTU (L3/IP4/IP6/MPLS)     Counter          Count     
host-veth1                        1      up          9000/0/0/0     rx packets                     7
                                                                    rx bytes                     650
                                                                    tx packets                     3
                                                                    tx bytes                     240
                                                                    drops                          4
                                                                    ip6                            6
local0                            0     down          0/0/0/0       drops                          1
memif1/1                          3      up          1500/0/0/0     rx-miss                        2
                                                                    tx-error                       9
tap0                              2      up          1500/0/0/0     
`

// ofVswitch is how the embedded dataplane does.
const ofVswitch = `Name   Idx  State  MTU (L3/IP4/IP6/MPLS)  Counter     Count
tap1   2    up     1500/0/0/0             rx packets  5
                                          rx bytes    420
                                          punt        1
local0  0   down   0/0/0/0
`

func TestTablesOfTrafficAreRead(t *testing.T) {
	for name, tt := range map[string]struct {
		table string
		want  map[row]Traffic
	}{
		"VPP's": {ofVPP, map[row]Traffic{
			{"host-veth1", 1}: {RxPackets: 7, RxBytes: 650, TxPackets: 3, TxBytes: 240, RxDrops: 4},
			{"local0", 0}:     {RxDrops: 1},
			{"memif1/1", 3}:   {RxDrops: 2, TxDrops: 9},
			{"tap0", 2}:       {},
		}},
		"the embedded one's":         {ofVswitch, map[row]Traffic{{"tap1", 2}: {RxPackets: 5, RxBytes: 420}, {"local0", 0}: {}}},
		"an answer that is none":     {"unknown input `show interface'\n", nil},
		"a counter of nobody":        {"   rx packets 5\n", nil},
		"a counter that is no count": {"tap0 1 up 0/0/0/0 rx packets many\n  rx bytes -4\n", map[row]Traffic{{"tap0", 1}: {}}},
		"no index":                   {"tap0 x up 0/0/0/0 rx packets 5\n   rx bytes 6\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readTraffic(tt.table); !maps.Equal(got, tt.want) {
				t.Errorf("read %+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzTableOfTraffic(f *testing.F) {
	f.Add(ofVPP)
	f.Add(ofVswitch)
	f.Fuzz(func(t *testing.T, table string) {
		if got := readTraffic(table); len(got) > strings.Count(table, "\n")+1 {
			t.Errorf("%d interfaces in %d lines", len(got), strings.Count(table, "\n")+1)
		}
	})
}

func TestTrafficIsThatOfOurInterfaces(t *testing.T) {
	l := newLab(t)
	l.mustCommit(object{wire.InterfaceKey("lo1"), wire.Interface{Type: wire.TypeLoopback, MTU: 1500, Up: true}})
	traffic, err := l.client.Traffic(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, there := traffic["lo1"]; !there || len(traffic) != 1 {
		t.Errorf("traffic %+v, want that of lo1 alone", traffic)
	}
}
