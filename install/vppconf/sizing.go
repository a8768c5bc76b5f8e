package vppconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	dataSize     = 2048 // of a packet buffer: holds a packet of 1500 bytes
	headers      = 256  // before the data of each buffer: VPP's header and room for encapsulation
	dpdkHeader   = 128  // before that, if the DPDK plugin is loaded
	cacheLine    = 64
	ordinaryPage = 4 << 10
	ordinary     = "4k" // VPP's name of ordinaryPage

	baseBuffers   = 16384 // VPP's default with hugepages
	workerBuffers = 4096  // in frames and in the cache of a worker
	tapRing       = 256   // buffers in the ring of a tap
	cardRings     = 2048  // buffers in the rings of a network card, for each queue

	baseHeap = 512 << 20 // VPP 25.10 without interfaces uses 36 MiB; the rest is for routes and traces of packets
	// a memif with an address uses 22 KiB; the rest is for neighbours, filters and other routes
	interfaceHeap = 128 << 10
	baseStats     = 32 << 20 // VPP's default
	counterBytes  = 512      // of an interface in the stats segment, for each thread
)

// cores are the processors of VPP's threads.
type cores struct {
	main    CPU
	workers []CPU
}

// chooseCores gives the main thread the second processor, because most of the kernel's interrupts go to the first one.
// The workers get processors of the same NUMA node first.
func chooseCores(o *Options, m *Machine) (cores, error) {
	c := cores{main: m.CPUs[0]}
	if len(m.CPUs) > 1 && !m.Confined {
		c.main = m.CPUs[1]
	}
	if o.MainCore != choose {
		i := slices.IndexFunc(m.CPUs, func(cpu CPU) bool { return cpu.ID == o.MainCore })
		if i < 0 {
			return c, fmt.Errorf("--main-core %d: VPP may use the processors %s only", o.MainCore, listed(m.CPUs, byID))
		}
		c.main = m.CPUs[i]
	}
	count := o.Workers
	if count == choose {
		count = defaultWorkers(len(m.CPUs))
	}
	rest := slices.DeleteFunc(slices.Clone(m.CPUs), func(cpu CPU) bool { return cpu == c.main })
	if count > len(rest) {
		return c, fmt.Errorf("--workers %d: beside the main thread's processor VPP may use %d", count, len(rest))
	}
	rank := func(cpu CPU) int {
		switch {
		case cpu.Node != c.main.Node:
			return 1
		case cpu == m.CPUs[0]:
			return 2
		}
		return 0
	}
	slices.SortStableFunc(rest, func(a, b CPU) int { return rank(a) - rank(b) })
	c.workers = rest[:count]
	slices.SortFunc(c.workers, func(a, b CPU) int { return a.ID - b.ID })
	return c, nil
}

// defaultWorkers leaves most processors to pods: a polling worker uses all of its processor.
func defaultWorkers(cpus int) int {
	switch {
	case cpus < 4:
		return 0
	case cpus < 8:
		return 1
	case cpus < 16:
		return 2
	}
	return 4
}

func (c cores) threads() int { return max(1, len(c.workers)) }

func listed(cpus []CPU, number func(CPU) int) string {
	words := make([]string, len(cpus))
	for i, cpu := range cpus {
		words[i] = strconv.Itoa(number(cpu))
	}
	return strings.Join(words, ",")
}

func byID(cpu CPU) int { return cpu.ID }

// buffersFor returns the number of packet buffers that each NUMA node needs, with the reason.
func buffersFor(o *Options, m *Machine, c cores) (count int, reason string) {
	if o.Buffers != 0 {
		return o.Buffers, "set by --buffers"
	}
	count = baseBuffers
	reason = fmt.Sprintf("%d by VPP's default", baseBuffers)
	add := func(n int, what string) {
		if n > 0 {
			count += n
			reason += fmt.Sprintf(" + %d %s", n, what)
		}
	}
	add(workerBuffers*len(c.workers), "in use by workers")
	if m.VhostNet {
		add(tapRing*(o.Pods+1), fmt.Sprintf("in the rings of the taps of %d pods and of the node", o.Pods))
	}
	if o.ownsCard(DPDK) || o.ownsCard(AFXDP) {
		add(cardRings*c.threads(), "in the rings of "+o.Uplink)
	}
	if count > maxBuffers {
		return maxBuffers, fmt.Sprintf("the maximum that VPP has room for; wanted: %s", reason)
	}
	return count, reason
}

// bufferBytes is the size of a buffer in VPP: an odd number of cache lines, which spreads buffers over the cache.
func (o *Options) bufferBytes() int {
	size := headers + dataSize
	if o.ownsCard(DPDK) {
		size += dpdkHeader
	}
	return (size/cacheLine | 1) * cacheLine
}

// pages are the pages of VPP's memory.
type pages struct {
	buffers, heap string // page sizes: Huge, Giga or ordinary
	ask           int    // value of buffers-per-numa with which VPP has the needed buffers
	count         int    // of pages of the buffers, on each NUMA node
	bytes         int    // of a page of the buffers
	reason        string
}

// choosePages uses hugepages only if enough are free: without them VPP fails at start or gets SIGBUS.
func choosePages(o *Options, m *Machine, c cores, buffers int) (pages, error) {
	asked := askOrdinary(o.bufferBytes(), buffers)
	none := pages{
		buffers: ordinary,
		heap:    ordinary,
		ask:     asked,
		count:   asked,
		bytes:   ordinaryPage,
		reason:  "set by --hugepages",
	}
	if o.Hugepages == None {
		return none, o.forbidOrdinary("with --hugepages none")
	}
	var missing []string
	for _, size := range pageSizes {
		if o.Hugepages != Auto && o.Hugepages != size.name {
			continue
		}
		perPage := size.bytes / o.bufferBytes()
		p := pages{buffers: size.name, heap: ordinary, ask: buffers, count: (buffers-1)/perPage + 1, bytes: size.bytes}
		lack := m.lacking(size.name, p.count)
		if lack == "" {
			p.reason = fmt.Sprintf("hugepages, %d on each NUMA node: fewer TLB misses than with ordinary pages",
				p.count)
			if size.name == Huge && m.hasRoom(c.main.Node, p.count, (heapFor(o)-1)/size.bytes+1) {
				p.heap = Huge
			}
			return p, nil
		}
		missing = append(missing, lack)
	}
	if o.Hugepages != Auto {
		return pages{}, fmt.Errorf(
			"--hugepages %s: %s; reserve more (sysctl vm.nr_hugepages, or hugepages= of the kernel), or use --hugepages auto",
			o.Hugepages, missing[0])
	}
	none.reason = missing[0]
	return none, o.forbidOrdinary(missing[0])
}

// askOrdinary returns the value of buffers-per-numa for ordinary pages. VPP takes a page for each buffer, lays buffers
// of the given size end to end, and skips those that cross a page boundary.
func askOrdinary(size, needed int) int {
	const lines = ordinaryPage / cacheLine
	size /= cacheLine
	return (needed*size + lines - size - 1) / (lines - size)
}

func (o *Options) forbidOrdinary(why string) error {
	if o.ownsCard(DPDK) {
		return fmt.Errorf("--uplink-mode dpdk needs hugepages: %s", why)
	}
	return nil
}

// lacking says why VPP cannot have the wanted hugepages on each NUMA node; "" if it can.
func (m *Machine) lacking(size string, wanted int) string {
	for _, node := range m.Nodes {
		if free := node.Free[size]; free < wanted {
			return fmt.Sprintf("NUMA node %d has %d free hugepages of %s, %d are needed", node.ID, free, size, wanted)
		}
	}
	if limit, ok := m.Limit[size]; ok && limit < wanted*len(m.Nodes) {
		return fmt.Sprintf("this container may have %d hugepages of %s, %d are needed", limit, size,
			wanted*len(m.Nodes))
	}
	return ""
}

// hasRoom reports whether a NUMA node has enough hugepages of 2M for its buffers and the heap.
func (m *Machine) hasRoom(node, buffers, heap int) bool {
	if limit, ok := m.Limit[Huge]; ok && limit < buffers*len(m.Nodes)+heap {
		return false
	}
	return slices.ContainsFunc(m.Nodes, func(n Node) bool { return n.ID == node && n.Free[Huge] >= buffers+heap })
}

// interfaces estimates the number of interfaces: one for each pod beside its memifs, and some of the node.
func (o *Options) interfaces() int { return o.Pods + o.Memifs + 16 }

func heapFor(o *Options) int { return roundUp(baseHeap+o.interfaces()*interfaceHeap, 64<<20) }

func statsFor(o *Options, c cores) int {
	return roundUp(baseStats+o.interfaces()*counterBytes*(1+len(c.workers)), 16<<20)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
