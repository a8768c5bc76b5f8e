package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// maxCommand bounds the part of an unknown command that the reply quotes.
const maxCommand = 200

// cliHandlers serve some of VPP's debug commands.
var cliHandlers = []handler{
	call(func(m *model.Model, r *vlib.CliInband) (*vlib.CliInbandReply, error) {
		return &vlib.CliInbandReply{Reply: command(m, r.Cmd)}, nil
	}),
}

// command runs one command and returns its output, which includes errors, as in VPP.
func command(m *model.Model, line string) string {
	line, _, _ = strings.Cut(line, "\x00")
	words := strings.Fields(line)
	switch joined := strings.Join(words, " "); {
	case joined == "show version":
		return fmt.Sprintf("%s v%s\n", program, version)
	case joined == "show interface" || joined == "show int":
		return showInterfaces(m)
	case joined == "show errors" || joined == "show error":
		return showErrors(m)
	case joined == "show memif":
		return showMemifs(m)
	case joined == "show runtime":
		return showRuntime(m)
	case joined == "show trace":
		return showTrace(m)
	case joined == "clear trace":
		m.Traces.SetFrames(0)
		return ""
	case strings.HasPrefix(joined, "trace add "):
		return addTrace(m, words[2:])
	case strings.HasPrefix(joined, "show bridge-domain"):
		return showBridges(m, words[2:])
	case strings.HasPrefix(joined, "show l2fib"):
		return showL2FIB(m, words[2:])
	case strings.HasPrefix(joined, "show ip neighbors"), strings.HasPrefix(joined, "show ip neighbor"):
		return showNeighbours(m)
	case strings.HasPrefix(joined, "show ip fib"):
		return showFIB(m, forward.IP4, words[3:])
	case strings.HasPrefix(joined, "show ip6 fib"):
		return showFIB(m, forward.IP6, words[3:])
	}
	return unknownInput(words)
}

// unknownInput returns VPP's output for an unknown command.
func unknownInput(words []string) string {
	joined := strings.ToValidUTF8(strings.Join(words, " "), "?")
	return fmt.Sprintf("unknown input `%.*s'\n", maxCommand, joined)
}

// addTrace runs "trace add <node> <n>". It traces all ports, whatever the name of the node.
func addTrace(m *model.Model, words []string) string {
	if len(words) != 2 {
		return unknownInput(append([]string{"trace", "add"}, words...))
	}
	n, err := strconv.ParseUint(words[1], 10, 31)
	if err != nil {
		return unknownInput(words[1:])
	}
	m.Traces.SetFrames(int(n))
	return ""
}

// page formats a table with tab-separated columns.
func page(fill func(w *tabwriter.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fill(w)
	_ = w.Flush() // a strings.Builder never fails
	return b.String()
}

func showInterfaces(m *model.Model) string {
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Name\tIdx\tState\tMTU (L3/IP4/IP6/MPLS)\tCounter\tCount")
		for _, t := range m.Interfaces.Traffic() {
			head := fmt.Sprintf("%s\t%d\t%s\t%d/%d/%d/%d", t.Name, t.Index, choose(t.AdminUp, "up", "down"), t.MTU[0],
				t.MTU[1], t.MTU[2], t.MTU[3])
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

// counters returns the counters that are not zero, with VPP's names.
func counters(c forward.Counters) []counter {
	all := []counter{
		{"rx packets", c.RxPackets}, {"rx bytes", c.RxBytes}, {"tx packets", c.TxPackets}, {"tx bytes", c.TxBytes},
		{"drops", c.Drops}, {"punt", c.Punts}, {"ip4", c.RxIP4}, {"ip6", c.RxIP6}, {"tx-error", c.TxErrors},
	}
	return slices.DeleteFunc(all, func(c counter) bool { return c.count == 0 })
}

// showRuntime shows the load of the workers: the share of the time on a processor, and frames by vector.
func showRuntime(m *model.Model) string {
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Thread\tTime\tBusy\tVectors\tPackets\tPackets/Vector\tSleeps")
		for _, l := range m.Loads() {
			fmt.Fprintf(w, "%s%d\t%s\t%.1f%%\t%d\t%d\t%.2f\t%d\n", forward.WorkerThreads, l.Worker,
				l.Elapsed.Round(time.Second),
				percent(l.Elapsed-l.Asleep, l.Elapsed), l.Vectors, l.Frames, ratio(l.Frames, l.Vectors), l.Sleeps)
		}
	})
}

// percent returns part of whole, at least 0: the clocks of both are read at different times.
func percent(part, whole time.Duration) float64 {
	return 100 * max(part, 0).Seconds() / whole.Seconds()
}

func ratio(of, to uint64) float64 { return float64(of) / float64(max(to, 1)) }

func showErrors(m *model.Model) string {
	drops := m.Drops()
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Count\tNode\tReason")
		for _, name := range slices.Sorted(maps.Keys(drops)) {
			node, reason, _ := strings.Cut(name, "/")
			fmt.Fprintf(w, "%d\t%s\t%s\n", drops[name], node, reason)
		}
	})
}

func showTrace(m *model.Model) string {
	var b strings.Builder
	for _, t := range m.Traces.List() {
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

func showNeighbours(m *model.Model) string {
	names := names(m)
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Age\tIP\tFlags\tEthernet\tInterface")
		for _, f := range []forward.Family{forward.IP4, forward.IP6} {
			for _, n := range m.Neighbours.List(model.NoIndex, f) {
				fmt.Fprintf(w, "%.1f\t%s\t%s\t%s\t%s\n", n.Age.Seconds(), n.Addr, choose(n.Static, "S", "D"), n.MAC,
					names[n.Index])
			}
		}
	})
}

// showFIB runs "show ip fib [table <id>]".
func showFIB(m *model.Model, f forward.Family, words []string) string {
	only := ""
	if len(words) == 2 && words[0] == "table" {
		only = words[1]
	} else if len(words) > 0 {
		return unknownInput(words)
	}
	names := names(m)
	var b strings.Builder
	for _, t := range m.Tables.List() {
		if t.Family != f || only != "" && only != strconv.FormatUint(uint64(t.ID), 10) {
			continue
		}
		fmt.Fprintf(&b, "%s, table:%d\n", t.Name, t.ID)
		for _, r := range m.Routes.List(t.TableKey, 0) {
			fmt.Fprintf(&b, "%s src:%s\n", r.Prefix, sourceNames[r.Source])
			for _, p := range r.Paths {
				fmt.Fprintf(&b, "  %s\n", showPath(p, names))
			}
		}
	}
	return b.String()
}

// sourceNames are VPP's names of route sources.
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
	return fmt.Sprintf("%s %s weight %d", to, cmp.Or(names[p.Interface], "DELETED"), p.Weight)
}

// names returns the names of the interfaces by index.
func names(m *model.Model) map[uint32]string {
	names := map[uint32]string{}
	for _, i := range m.Interfaces.List(model.InterfaceFilter{Index: model.NoIndex}) {
		names[i.Index] = i.Name
	}
	return names
}

// showBridges runs "show bridge-domain [<id> [detail|int]]".
func showBridges(m *model.Model, words []string) string {
	id := model.NoIndex
	members := false
	if len(words) > 0 {
		n, err := strconv.ParseUint(words[0], 10, 32)
		if err != nil || len(words) > 2 {
			return unknownInput(words)
		}
		id = uint32(n)
		members = len(words) == 2 && slices.Contains([]string{"detail", "det", "int"}, words[1])
	}
	list := m.Bridges.List(id)
	switch {
	case id == 0:
		return "show bridge-domain: No operations on the default bridge domain are supported\n"
	case len(list) == 0 && id != model.NoIndex:
		return fmt.Sprintf("show bridge-domain: No such bridge domain %d\n", id)
	case len(list) == 0:
		return "no bridge-domains in use\n"
	}
	text := bridgeTable(m, list)
	if members {
		text += memberTable(m, list[0])
		if list[0].Tag != "" && words[1] != "int" {
			text += "\n  BD-Tag: " + list[0].Tag + "\n"
		}
	}
	return text
}

func bridgeTable(m *model.Model, list []model.BridgeDetails) string {
	names := names(m)
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w,
			"BD-ID\tIndex\tAge(min)\tLearning\tU-Forwrd\tUU-Flood\tFlooding\tARP-Term\tarp-ufwd\tLearn-count\tBVI-Intf")
		for _, b := range list {
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", b.ID, b.Index,
				choose(b.Age > 0, strconv.Itoa(int(b.Age)), "off"),
				onOff(b.Flags, model.BridgeLearn), onOff(b.Flags, model.BridgeForward),
				choose(b.Flags&model.BridgeUUFlood != 0, "flood", "drop"),
				onOff(b.Flags, model.BridgeFlood), "off", "off", b.Learned, nameOf(names, b.BVI))
		}
	})
}

func memberTable(m *model.Model, b model.BridgeDetails) string {
	if len(b.Members) == 0 {
		return ""
	}
	names := names(m)
	return "\n" + page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Interface\tIf-idx\tSHG\tBVI\tTxFlood\tVLAN-Tag-Rewrite")
		for _, m := range b.Members {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t*\tnone\n", nameOf(names, m.Interface), m.Interface, m.SplitHorizon,
				star(m.Interface == b.BVI))
		}
	})
}

func onOff(f, flag model.BridgeFlags) string {
	return choose(f&flag != 0, "on", "off")
}

func star(is bool) string {
	return choose(is, "*", "-")
}

// nameOf returns the name of an interface in VPP's layer 2 commands.
func nameOf(names map[uint32]string, index uint32) string {
	if index == model.NoIndex {
		return "N/A"
	}
	return cmp.Or(names[index], "Stale")
}

// showL2FIB runs "show l2fib [all|verbose|learn|add|bd_id <id>]". Without an argument it only counts the entries.
func showL2FIB(m *model.Model, words []string) string {
	id := model.NoIndex
	shown := func(model.L2Entry) bool { return true }
	switch {
	case len(words) == 0:
		shown = nil
	case words[0] == "all", words[0] == "verbose":
	case words[0] == "learn":
		shown = func(e model.L2Entry) bool { return e.Learned }
	case words[0] == "add":
		shown = func(e model.L2Entry) bool { return !e.Learned }
	case words[0] == "bd_id" && len(words) == 2:
		n, err := strconv.ParseUint(words[1], 10, 32)
		if err != nil || len(m.Bridges.List(uint32(n))) == 0 {
			return fmt.Sprintf("show l2fib: bridge domain id %s doesn't exist\n", strings.ToValidUTF8(words[1], "?"))
		}
		id = uint32(n)
	default:
		return unknownInput(words)
	}
	all := m.L2FIB.List(model.NoIndex)
	if len(all) == 0 {
		return "no l2fib entries\n"
	}
	text := ""
	if shown != nil {
		text = macTable(m, slices.DeleteFunc(slices.Clone(all), func(e model.L2Entry) bool {
			return !shown(e) || id != model.NoIndex && id != e.Bridge
		}))
	}
	learned := 0
	for _, e := range all {
		if e.Learned {
			learned++
		}
	}
	return text + fmt.Sprintf("L2FIB total/learned entries: %d/%d\n", len(all), learned)
}

func macTable(m *model.Model, list []model.L2Entry) string {
	names := names(m)
	indexes := map[uint32]int{}
	ages := map[uint32]bool{}
	for _, b := range m.Bridges.List(model.NoIndex) {
		indexes[b.ID] = b.Index
		ages[b.ID] = b.Age > 0
	}
	return page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "Mac-Address\tBD-Idx\tIf-Idx\tAge(min)\tstatic\tfilter\tbvi\tInterface-Name")
		for _, e := range list {
			age := "-"
			switch {
			case !e.Learned:
				age = "no"
			case ages[e.Bridge]:
				age = strconv.Itoa(int(e.Age.Minutes()))
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", e.MAC, indexes[e.Bridge], int32(e.Interface), age,
				star(e.Static), star(e.Filter), star(e.BVI), nameOf(names, e.Interface))
		}
	})
}

// showMemifs runs "show memif". It shows no secrets.
func showMemifs(m *model.Model) string {
	var b strings.Builder
	b.WriteString("sockets\n")
	b.WriteString(page(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "  id\tlistener\tfilename")
		for _, f := range m.MemifSockets.List() {
			fmt.Fprintf(w, "  %d\t%s\t%s\n", f.ID, yesNo(f.Listening), f.Path)
		}
	}))
	for _, m := range m.Memifs.List() {
		showMemif(&b, m)
	}
	return b.String()
}

func showMemif(b *strings.Builder, m model.MemifDetails) {
	mode := choose(m.Mode == model.MemifIP, "ip", "ethernet")
	flags := choose(m.AdminUp, " admin-up", "") + choose(m.Peer != nil, " connected", "")
	fmt.Fprintf(b, "\ninterface %s\n", m.Name)
	if m.Peer != nil {
		fmt.Fprintf(b, "  remote-name %q\n  remote-interface %q\n", m.Peer.Name, m.Peer.Interface)
	}
	fmt.Fprintf(b, "  socket-id %d id %d mode %s secret %s\n  flags%s\n", m.Socket, m.ID, mode, yesNo(m.Secret != ""),
		flags)
	if p := m.Peer; p != nil {
		fmt.Fprintf(b, "  slave-to-master rings %d, master-to-slave rings %d, ring-size %d, regions %d\n",
			p.RxQueues, p.TxQueues, p.RingSize, p.Regions)
	}
}

func yesNo(b bool) string {
	return choose(b, "yes", "no")
}
