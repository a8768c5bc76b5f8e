package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// page writes a table whose columns are separated by tabs.
func page(fill func(w *tabwriter.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fill(w)
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

func (s *Server) showInterfaces() string {
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Name\tIdx\tState\tMTU (L3/IP4/IP6/MPLS)\tCounter\tCount")
		for _, t := range s.model.Traffic() {
			state := "down"
			if t.AdminUp {
				state = "up"
			}
			head := fmt.Sprintf("%s\t%d\t%s\t%d/%d/%d/%d", t.Name, t.Index, state, t.MTU[0], t.MTU[1], t.MTU[2], t.MTU[3])
			for _, c := range counters(t.Counters) {
				fmt.Fprintf(w, "%s\t%s\t%d\n", head, c.name, c.count)
				head = "\t\t\t"
			}
			if head != "\t\t\t" {
				fmt.Fprintln(w, head)
			}
		}
	})
}

type counter struct {
	name  string
	count uint64
}

// counters are those that are not zero, named as VPP names them.
func counters(c forward.Counters) []counter {
	all := []counter{{"rx packets", c.RxPackets}, {"rx bytes", c.RxBytes}, {"tx packets", c.TxPackets}, {"tx bytes", c.TxBytes},
		{"drops", c.Drops}, {"punt", c.Punts}, {"ip4", c.RxIP4}, {"ip6", c.RxIP6}, {"tx-error", c.TxErrors}}
	return slices.DeleteFunc(all, func(c counter) bool { return c.count == 0 })
}

func (s *Server) showErrors() string {
	drops := s.model.Drops()
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Count\tNode\tReason")
		for _, name := range slices.Sorted(maps.Keys(drops)) {
			node, reason, _ := strings.Cut(name, "/")
			fmt.Fprintf(w, "%d\t%s\t%s\n", drops[name], node, reason)
		}
	})
}

func (s *Server) showTrace() string {
	var b strings.Builder
	for _, t := range s.model.Traces() {
		fmt.Fprintf(&b, "------------------- Start of trace on %s -------------------\n", t.Name)
		for n, line := range t.Lines {
			fmt.Fprintf(&b, "Packet %d\n\n  %s\n\n", n+1, line)
		}
	}
	if b.Len() == 0 {
		return "No packets in trace buffer\n"
	}
	return b.String()
}

func (s *Server) showNeighbours() string {
	names := s.names()
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Age\tIP\tFlags\tEthernet\tInterface")
		for _, f := range []forward.Family{forward.IP4, forward.IP6} {
			for _, n := range s.model.Neighbours(model.NoIndex, f) {
				flags := "D"
				if n.Static {
					flags = "S"
				}
				fmt.Fprintf(w, "%.1f\t%s\t%s\t%s\t%s\n", n.Age.Seconds(), n.Addr, flags, n.MAC, names[n.Index])
			}
		}
	})
}

// showFIB shows all tables of a family, or with the words "table <id>" one.
func (s *Server) showFIB(f forward.Family, words []string) string {
	only := ""
	if len(words) == 2 && words[0] == "table" {
		only = words[1]
	} else if len(words) > 0 {
		return unknownInput(words)
	}
	names := s.names()
	var b strings.Builder
	for _, t := range s.model.Tables() {
		if t.Family != f || only != "" && only != strconv.FormatUint(uint64(t.ID), 10) {
			continue
		}
		fmt.Fprintf(&b, "%s, table:%d\n", t.Name, t.ID)
		for _, r := range s.model.Routes(t.TableKey, 0) {
			fmt.Fprintf(&b, "%s src:%s\n", r.Prefix, sourceNames[r.Source])
			for _, p := range r.Paths {
				fmt.Fprintf(&b, "  %s\n", showPath(p, names))
			}
		}
	}
	return b.String()
}

// sourceNames are VPP's.
var sourceNames = map[model.Source]string{
	model.SourceSpecial: "special", model.SourceInterface: "interface", model.SourceAPI: "API",
	model.SourceAdjacency: "adjacency", model.SourceProxyND: "IPv6-proxy-nd", model.SourceDefault: "default-route",
}

func showPath(p model.Path, names map[uint32]string) string {
	switch p.Kind {
	case model.PathLocal:
		return "receive"
	case model.PathDrop:
		return "drop"
	case model.PathUnreachable:
		return "icmp unreachable"
	case model.PathProhibit:
		return "icmp prohibited"
	}
	to := "attached"
	if p.NextHop.IsValid() {
		to = "via " + p.NextHop.String()
	}
	if p.Interface == model.NoIndex {
		return fmt.Sprintf("%s in table %d weight %d", to, p.Table, p.Weight)
	}
	name, ok := names[p.Interface]
	if !ok {
		name = "DELETED"
	}
	return fmt.Sprintf("%s %s weight %d", to, name, p.Weight)
}

// names are the interfaces' names by index.
func (s *Server) names() map[uint32]string {
	names := map[uint32]string{}
	for _, i := range s.model.Interfaces(model.InterfaceFilter{Index: model.NoIndex}) {
		names[i.Index] = i.Name
	}
	return names
}
