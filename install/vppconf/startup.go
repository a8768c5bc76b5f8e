package vppconf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Config is a startup configuration.
type Config struct {
	summary  []string
	sections []section
}

type section struct {
	name  string
	lines []line
}

type line struct{ directive, reason string }

// New sizes VPP for a machine. The options must be valid.
func New(o *Options, m *Machine) (Config, error) {
	if (o.ownsCard(AFPacket) || o.ownsCard(AFXDP)) && !m.hasInterface(o.Uplink) {
		return Config{}, fmt.Errorf(
			"--uplink %s: this machine has no interface of this name, and --uplink-mode %s needs one; run it on the node",
			o.Uplink, o.UplinkMode)
	}
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
		{"unix", unixLines(o)},
		{
			"socksvr",
			[]line{
				{
					"socket-name " + o.file("api.sock"),
					"API socket of the agent (dataplane.socket); owner and group of VPP only (0775)",
				},
			},
		},
		{"statseg", statsLines(o, c)},
		{
			"api-trace",
			[]line{
				{
					"on nitems 16384",
					"vppctl api trace dump shows the agent's last requests; after a crash they are in /tmp/api_post_mortem.PID, with memif secrets",
				},
			},
		},
		{
			"api-segment",
			[]line{
				{
					"prefix " + filepath.Base(o.RuntimeDir),
					"name of the shared memory of other API clients, unique for each VPP on this node",
				},
			},
		},
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
		{"nodaemon", "kubelet or systemd supervises VPP and sees its exit code"},
		{"nosyslog", "log to standard error, which the supervisor keeps"},
		{"nocolor", "no colours in the supervisor's log"},
		{
			"runtime-dir " + o.RuntimeDir,
			"for root only (0700) if weft-agent vpp-config -o created it; VPP would create it open to all users",
		},
		{"cli-listen " + o.file("cli.sock"), "for vppctl; write access to it controls the node's network"},
		{"pidfile " + o.file("vpp.pid"), "must be in runtime-dir, otherwise VPP does not start"},
	}
}

func statsLines(o *Options, c cores) []line {
	return []line{
		{"socket-name " + o.file("stats.sock"), "the agent reads counters of interfaces and drops here"},
		{
			"size " + mebibytes(statsFor(o, c)),
			fmt.Sprintf("counters of %d interfaces, threads: %d; VPP ends if they do not fit", o.interfaces(),
				1+len(c.workers)),
		},
	}
}

func memoryLines(o *Options, p pages) []line {
	reason := "allocated when used, without hugepages"
	if p.heap != ordinary {
		reason = "enough hugepages are free for the heap, too"
	}
	return []line{
		{
			"main-heap-size " + mebibytes(heapFor(o)),
			fmt.Sprintf("routes, neighbours and filters of %d interfaces; VPP ends if it is full", o.interfaces()),
		},
		{"main-heap-page-size " + p.heap, reason},
	}
}

func bufferLines(p pages, buffers int, why string) []line {
	if p.buffers == ordinary {
		why = fmt.Sprintf("%d usable, because VPP skips those that would cross a page: %s", buffers, why)
	}
	return []line{
		{"page-size " + p.buffers, p.reason},
		{"buffers-per-numa " + strconv.Itoa(p.ask), why},
		{
			"default data-size " + strconv.Itoa(dataSize),
			"a packet of 1500 bytes takes one buffer, one of 9600 takes five",
		},
	}
}

func cpuLines(m *Machine, c cores) []line {
	var lines []line
	number := byID
	if m.Confined {
		lines = append(lines, line{
			"relative",
			fmt.Sprintf(
				"VPP may use the processors %s only; the numbers below are indexes into these, so the file stays valid if they change",
				listed(m.CPUs, byID)),
		})
		number = func(cpu CPU) int { return slices.Index(m.CPUs, cpu) }
	}
	reason := "API, CLI and timers"
	if c.main != m.CPUs[0] && m.CPUs[0].ID == 0 {
		reason += "; processor 0 serves the kernel's interrupts"
	}
	if len(c.workers) == 0 {
		reason += "; also forwards, because there are no workers"
	}
	lines = append(lines, line{"main-core " + strconv.Itoa(number(c.main)), reason})
	if len(c.workers) > 0 {
		where := "of the main thread's NUMA node"
		if slices.ContainsFunc(c.workers, func(cpu CPU) bool { return cpu.Node != c.main.Node }) {
			where = "of several NUMA nodes, because that of the main thread has too few"
		}
		lines = append(lines, line{
			"corelist-workers " + listed(c.workers, number),
			"to forward packets, " + where + "; a polling worker uses all of its processor",
		})
	}
	return lines
}

func pluginLines(o *Options) []line {
	var lines []line
	if o.PluginPath != "" {
		lines = append(lines, line{"path " + o.PluginPath, "set by --plugin-path"})
	}
	lines = append(lines,
		line{
			"vat-path " + o.file("none"),
			"a missing directory, because VPP's test plugins log errors if their plugins are disabled",
		},
		line{"plugin default { disable }", "the agent needs few; every other one uses memory and is attack surface"},
		enabled("acl", "anti-spoofing: pods send from their own MAC and addresses only"),
		enabled("af_packet",
			"veths of pods, the node's own link if there are no taps, network cards in mode af_packet"),
		enabled("memif", "shared-memory interfaces of pods"),
		enabled("ping", "answers echo requests to VPP's addresses, such as the gateways of networks"),
		enabled("policer",
			"limits of pods' rates; a plugin since VPP 26.06, before that a part of VPP, and this line has no effect"),
		enabled("tap",
			"taps of pods; a plugin since VPP 26.02, before that a part of VPP, and this line has no effect"),
		enabled("tracedump", "weftctl trace; without it VPP has no message to start a trace or to read one"),
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
		{"uio-driver vfio-pci", "the kernel's driver for cards that programs own; needs an IOMMU"},
		{
			fmt.Sprintf("dev %s { name %s num-rx-queues %d }", address, name, c.threads()),
			"the node's network card, with a queue for each forwarding thread; no other card is touched",
		},
	}, nil
}

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
	if buffers := p.count * p.bytes * len(m.Nodes); p.buffers == ordinary {
		memory += buffers
	} else {
		huge = buffers
	}
	if p.heap != ordinary {
		huge += heapFor(o)
	}
	return []string{
		"VPP's startup configuration, written by weft-agent vpp-config for this machine:",
		fmt.Sprintf("processors %s; %s; free hugepages: %s", listed(m.CPUs, byID), taps, strings.Join(nodes, "; ")),
		fmt.Sprintf(
			"VPP takes %s of hugepages and, with all interfaces, about %s of other memory, without the rings of veths.",
			mebibytes(huge), mebibytes(memory)),
	}
}

func mebibytes(n int) string { return strconv.Itoa(n>>20) + "M" }

// String returns the text of the file.
func (c Config) String() string {
	var b strings.Builder
	for _, s := range c.summary {
		b.WriteString("# " + s + "\n")
	}
	for _, s := range c.sections {
		b.WriteString("\n" + s.name + " {\n")
		width := 0
		for _, l := range s.lines {
			width = max(width, len(l.directive))
		}
		for _, l := range s.lines {
			fmt.Fprintf(&b, "  %-*s # %s\n", width, l.directive, l.reason)
		}
		b.WriteString("}\n")
	}
	return b.String()
}
