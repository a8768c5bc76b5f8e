package vppconf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Config is a startup configuration. VPP reads the result of String.
type Config struct {
	summary  []string
	sections []section
}

type section struct {
	name  string
	lines []line
}

// line is a directive of VPP with its reason.
type line struct{ text, reason string }

// New sizes VPP for a machine. The options are valid.
func New(o *Options, m *Machine) (Config, error) {
	c, err := chooseCores(o, m)
	if err != nil {
		return Config{}, err
	}
	buffers, why := buffersFor(o, m, c)
	p, err := choosePages(o, m, c, buffers)
	if err != nil {
		return Config{}, err
	}
	sections := []section{
		{"unix", unixLines(o)}, {"socksvr", []line{{"socket-name " + o.file("api.sock"), "where the agent connects (dataplane.socket); owner and group of VPP only (0775)"}}},
		{"statseg", statsLines(o, c)},
		{"api-trace", []line{{"on nitems 16384", "vppctl api trace dump shows what the agent asked for last; after a crash it is in /tmp/api_post_mortem.PID, with memifs' secrets"}}},
		{"api-segment", []line{{"prefix " + filepath.Base(o.RuntimeDir), "name of the shared memory of other API clients; another VPP on this node has another one"}}},
		{"memory", memoryLines(o, p)}, {"buffers", bufferLines(p, buffers, why)},
		{"cpu", cpuLines(m, c)}, {"plugins", pluginLines(o)},
	}
	if o.ownsCard(DPDK) {
		lines, err := dpdkLines(o, m, c)
		if err != nil {
			return Config{}, err
		}
		sections = append(sections, section{"dpdk", lines})
	}
	return Config{describe(o, m, p), sections}, nil
}

func (o *Options) file(name string) string { return filepath.Join(o.RuntimeDir, name) }

func unixLines(o *Options) []line {
	return []line{
		{"nodaemon", "kubelet or systemd supervises VPP and sees how it ends"},
		{"nosyslog", "messages go to standard error, which the supervisor keeps"},
		{"nocolor", "without colours in the supervisor's log"},
		{"runtime-dir " + o.RuntimeDir, "for root only (0700) if weft-agent vpp-config -o made it; VPP makes a missing one open to all"},
		{"cli-listen " + o.file("cli.sock"), "for vppctl; write access to it is control of the node's network"},
		{"pidfile " + o.file("vpp.pid"), "VPP does not start with one outside of runtime-dir"},
	}
}

func statsLines(o *Options, c cores) []line {
	return []line{
		{"socket-name " + o.file("stats.sock"), "where the agent reads the counters of interfaces and drops"},
		{"size " + mebibytes(statsFor(o, c)), fmt.Sprintf("counters of %d interfaces, threads: %d; VPP ends when they do not fit", o.interfaces(), 1+len(c.workers))},
	}
}

func memoryLines(o *Options, p pages) []line {
	reason := "takes memory when it is used, and needs no hugepages"
	if p.heap != None {
		reason = "enough hugepages are free for the heap too"
	}
	return []line{
		{"main-heap-size " + mebibytes(heapFor(o)), fmt.Sprintf("routes, neighbours and filters of %d interfaces; VPP ends when it is full", o.interfaces())},
		{"main-heap-page-size " + pageSize(p.heap), reason},
	}
}

func bufferLines(p pages, buffers int, why string) []line {
	if p.buffers == None {
		why = fmt.Sprintf("for %d, because VPP leaves out those that would cross a page: %s", buffers, why)
	}
	return []line{
		{"page-size " + pageSize(p.buffers), p.reason},
		{"buffers-per-numa " + strconv.Itoa(p.ask), why},
		{"default data-size " + strconv.Itoa(dataSize), "a packet of 1500 bytes is in one buffer, one of 9000 in five"},
	}
}

func cpuLines(m *Machine, c cores) []line {
	var lines []line
	number := func(cpu CPU) string { return strconv.Itoa(cpu.ID) }
	if m.Confined {
		lines = append(lines, line{"relative", fmt.Sprintf("VPP may use the processors %s only; numbers below count within these, so that the file stays right if they change", listed(m.CPUs))})
		number = func(cpu CPU) string { return strconv.Itoa(slices.Index(m.CPUs, cpu)) }
	}
	reason := "API, CLI and timers"
	if c.main != m.CPUs[0] && m.CPUs[0].ID == 0 {
		reason += "; processor 0 is left to the kernel's interrupts"
	}
	if len(c.workers) == 0 {
		reason += "; forwards too, because there are no workers"
	}
	lines = append(lines, line{"main-core " + number(c.main), reason})
	if len(c.workers) > 0 {
		numbers := make([]string, len(c.workers))
		for i, cpu := range c.workers {
			numbers[i] = number(cpu)
		}
		where := "of the main thread's NUMA node"
		if slices.ContainsFunc(c.workers, func(cpu CPU) bool { return cpu.Node != c.main.Node }) {
			where = "of several NUMA nodes, because the main thread's has too few"
		}
		lines = append(lines, line{"corelist-workers " + strings.Join(numbers, ","), "to forward packets, " + where + "; a worker that polls uses all of its processor"})
	}
	return lines
}

func pluginLines(o *Options) []line {
	var lines []line
	if o.PluginPath != "" {
		lines = append(lines, line{"path " + o.PluginPath, "as --plugin-path says"})
	}
	lines = append(lines,
		line{"vat-path " + o.file("none"), "a directory that does not exist: VPP's test plugins would complain at start that their plugins are disabled"},
		line{"plugin default { disable }", "the agent needs few; each other one takes memory and may be attacked"},
		enabled("acl", "pods' interfaces send from their own MAC and addresses only"),
		enabled("af_packet", "pods' veths, the node's own link where there are no taps, network cards in mode af_packet"),
		enabled("memif", "pods' shared-memory interfaces"),
		enabled("ping", "answers echo requests to VPP's addresses, such as the gateways of networks"),
		enabled("tap", "pods' taps; a plugin since VPP 26.06, part of VPP before, where this line does nothing"),
		enabled("vxlan", "tunnels to other nodes"),
	)
	if o.ownsCard(AFXDP) {
		lines = append(lines, enabled("af_xdp", "reads "+o.Uplink))
	}
	if o.ownsCard(DPDK) {
		lines = append(lines, enabled("dpdk", "reads "+o.Uplink))
	}
	return lines
}

func enabled(plugin, reason string) line {
	return line{"plugin " + plugin + "_plugin.so { enable }", reason}
}

func dpdkLines(o *Options, m *Machine, c cores) ([]line, error) {
	address, err := m.pciAddress(o.Uplink)
	if err != nil {
		return nil, err
	}
	name := o.Uplink
	if name == address {
		name = "uplink"
	}
	return []line{
		{"uio-driver vfio-pci", "the kernel's driver that gives a card to a program; it needs an IOMMU"},
		{fmt.Sprintf("dev %s { name %s num-rx-queues %d }", address, name, c.threads()), "the node's network card, with a queue for each thread that forwards; no other card is touched"},
	}, nil
}

// describe describes the machine and what VPP takes of it.
func describe(o *Options, m *Machine, p pages) []string {
	taps := "with /dev/vhost-net (taps are possible)"
	if !m.VhostNet {
		taps = "without /dev/vhost-net (no taps, pods have veths)"
	}
	nodes := make([]string, len(m.Nodes))
	for i, n := range m.Nodes {
		nodes[i] = fmt.Sprintf("node %d: %d of 2M, %d of 1G", n.ID, n.Free[Huge], n.Free[Giga])
	}
	memory := 170 << 20 // the process and the heap of a VPP 25.10 without interfaces
	memory += o.interfaces() * interfaceHeap
	huge := 0
	switch p.buffers {
	case None:
		memory += p.count * ordinaryPage * len(m.Nodes)
	default:
		huge = p.count * bytesOf(p.buffers) * len(m.Nodes)
	}
	if p.heap != None {
		huge += heapFor(o)
	}
	return []string{
		"VPP's startup configuration, written by weft-agent vpp-config for this machine:",
		fmt.Sprintf("processors %s; %s; free hugepages: %s", listed(m.CPUs), taps, strings.Join(nodes, "; ")),
		fmt.Sprintf("VPP will take %s of hugepages and, with all interfaces, about %s of other memory besides the rings of veths.", mebibytes(huge), mebibytes(memory)),
	}
}

func bytesOf(size string) int {
	for _, s := range pageSizes {
		if s.name == size {
			return s.bytes
		}
	}
	return ordinaryPage
}

// pageSize is a size of pages as VPP reads it.
func pageSize(size string) string {
	if size == None {
		return "4k"
	}
	return size
}

func mebibytes(n int) string { return strconv.Itoa(n>>20) + "M" }

// String is the text of the file.
func (c Config) String() string {
	var b strings.Builder
	for _, s := range c.summary {
		b.WriteString("# " + s + "\n")
	}
	for _, s := range c.sections {
		b.WriteString("\n" + s.name + " {\n")
		width := 0
		for _, l := range s.lines {
			width = max(width, len(l.text))
		}
		for _, l := range s.lines {
			fmt.Fprintf(&b, "  %-*s # %s\n", width, l.text, l.reason)
		}
		b.WriteString("}\n")
	}
	return b.String()
}
