package vpp

import (
	"fmt"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
)

// release is a release of VPP by year and month: 25.10 is {25, 10}.
type release struct{ year, month int }

func (r release) before(o release) bool {
	return r.year < o.year || r.year == o.year && r.month < o.month
}

// releaseOf reads the release from a VPP's answer to show_version; false for another program, such as weft-vswitch.
func releaseOf(version string) (r release, ok bool) {
	n, err := fmt.Sscanf(version, vppProgram+" %d.%d", &r.year, &r.month)
	return r, n == 2 && err == nil
}

// vppProgram is what VPP calls itself in show_version.
const vppProgram = "vpe"

// fact is a defect of some releases of VPP: a message that ends the process. The agent never sends it to them.
type fact struct {
	message string                        // its name
	fixed   release                       // the first release without the defect
	harms   func(api.Message) bool        // whether this message has the harmful form
	instead func(api.Message) api.Message // a harmless form with the same effect
}

var allFacts = []fact{{
	// VPP dies of SIGSEGV: the decoded path keeps interface 0, counts as attached to local0 and is exported to a table
	// that does not exist. Fixed by commit 2d25978a8c5 of VPP, which is in stable/2602 and not in stable/2510.
	message: (&ip.IPRouteAddDel{}).GetMessageName(),
	fixed:   release{26, 2},
	harms: func(m api.Message) bool {
		r := m.(*ip.IPRouteAddDel).Route
		return r.TableID != 0 && len(r.Paths) > 0 && isUnreachable(r.Paths[len(r.Paths)-1])
	},
	instead: withBackupDrop,
}}

func isUnreachable(p fib_types.FibPath) bool {
	return p.Type == fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH
}

// withBackupDrop adds a path of type DROP that is never preferred. VPP does not export a route with this last path
// (fib_entry_flags_update in fib_entry_src.c), and packets still take the path before it.
func withBackupDrop(m api.Message) api.Message {
	spared := *m.(*ip.IPRouteAddDel)
	last := spared.Route.Paths[len(spared.Route.Paths)-1]
	spared.Route.Paths = append(slices.Clone(spared.Route.Paths), fib_types.FibPath{
		SwIfIndex:  uint32(noIndex),
		Weight:     1,
		Preference: leastPreferred,
		Type:       fib_types.FIB_API_PATH_TYPE_DROP,
		Proto:      last.Proto,
	})
	spared.Route.NPaths++
	return &spared
}

// leastPreferred is the highest value of a path's preference: lower ones are used first.
const leastPreferred = 255

// withoutBackupDrop removes the path of withBackupDrop from the paths of a dump.
func withoutBackupDrop(paths []fib_types.FibPath) []fib_types.FibPath {
	unreachable := slices.ContainsFunc(paths, isUnreachable)
	return slices.DeleteFunc(slices.Clone(paths), func(p fib_types.FibPath) bool {
		return unreachable && p.Type == fib_types.FIB_API_PATH_TYPE_DROP && p.Preference == leastPreferred
	})
}

type facts []fact

func factsOf(version string) facts {
	r, isVPP := releaseOf(version)
	if !isVPP {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(allFacts), func(f fact) bool { return !r.before(f.fixed) })
}

// spare returns a message with the effect of m that the dataplane survives, nearly always m itself.
func (fs facts) spare(m api.Message) api.Message {
	for _, f := range fs {
		if f.message == m.GetMessageName() && f.harms(m) {
			m = f.instead(m)
		}
	}
	return m
}
