package vpp

import (
	"reflect"
	"testing"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
)

// A VPP that dies takes the network of all pods of the node.
func TestVPPIsSparedFatalMessages(t *testing.T) {
	route := func(table uint32, paths ...fib_types.FibPathType) *ip.IPRouteAddDel {
		r := ip.IPRoute{TableID: table, NPaths: uint8(len(paths))}
		for _, kind := range paths {
			r.Paths = append(r.Paths, fib_types.FibPath{Type: kind})
		}
		return &ip.IPRouteAddDel{IsAdd: true, Route: r}
	}
	const (
		normal      = fib_types.FIB_API_PATH_TYPE_NORMAL
		unreachable = fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH
		drop        = fib_types.FIB_API_PATH_TYPE_DROP
	)
	for name, tt := range map[string]struct {
		version string
		sent    *ip.IPRouteAddDel
		want    []fib_types.FibPathType
	}{
		"a VPP that dies of it": {
			"vpe 25.10-release", route(7, unreachable), []fib_types.FibPathType{unreachable, drop},
		},
		"behind another path": {
			"vpe 25.10-release", route(7, normal, unreachable), []fib_types.FibPathType{normal, unreachable, drop},
		},
		"an older one": {
			"vpe 24.06-rc0~1", route(7, unreachable), []fib_types.FibPathType{unreachable, drop},
		},
		"a VPP without the defect": {
			"vpe 26.02-release", route(7, unreachable), []fib_types.FibPathType{unreachable},
		},
		"weft-vswitch": {
			"weft-vswitch 25.10-weft", route(7, unreachable), []fib_types.FibPathType{unreachable},
		},
		"the table 0": {
			"vpe 25.10-release", route(0, unreachable), []fib_types.FibPathType{unreachable},
		},
		"a route that leads anywhere": {"vpe 25.10-release", route(7, normal), []fib_types.FibPathType{normal}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(tt.sent.Route.Paths)
			sent := factsOf(tt.version).spare(tt.sent).(*ip.IPRouteAddDel).Route
			var got []fib_types.FibPathType
			for _, p := range sent.Paths {
				got = append(got, p.Type)
			}
			if !reflect.DeepEqual(got, tt.want) || int(sent.NPaths) != len(got) {
				t.Errorf("%d paths of the types %v, expected %v", sent.NPaths, got, tt.want)
			}
			if left := withoutBackupDrop(sent.Paths); len(left) != before {
				t.Errorf("a dump shows %d paths, expected %d", len(left), before)
			}
		})
	}
}
