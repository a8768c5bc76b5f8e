package vppconf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	dataSize     = 2048 // of a packet buffer: a packet of the usual MTUs in one
	headers      = 256  // before the data of each buffer: VPP's header and room for encapsulation
	dpdkHeader   = 128  // before that, where the DPDK plugin is loaded
	cacheLine    = 64
	ordinaryPage = 4 << 10

	baseBuffers   = 16384 // what VPP asks for by default with hugepages
	workerBuffers = 4096  // in frames and in the cache of a worker
	tapRing       = 256   // buffers that wait in the ring of a tap
	cardRings     = 2048  // buffers that wait in the rings of a network card, for each of its queues

	baseHeap      = 512 << 20 // VPP 25.10 without interfaces uses 36 MiB; the rest is for routes and traces of packets
	interfaceHeap = 128 << 10 // a memif with an address uses 22 KiB; the rest is for neighbours, filters and other routes
	baseStats     = 32 << 20  // VPP's default
	counterBytes  = 512       // of an interface in the stats segment, for each thread
)

// cores are the processors of VPP's threads.
type cores struct {
	main    CPU
	workers []CPU
}

// chooseCores gives the main thread the second processor, because the kernel's interrupts go to the node's first one as a
// rule, and the workers others of the same NUMA node as far as there are enough.
func chooseCores(o *Options, m *Machine) (cores, error) {
	c := cores{main: m.CPUs[0]}
	if len(m.CPUs) > 1 && !m.Confined {
		c.main = m.CPUs[1]
	}
	if o.MainCore != choose {
		i := slices.IndexFunc(m.CPUs, func(cpu CPU) bool { return cpu.ID == o.MainCore })
		if i < 0 {
			return c, fmt.Errorf("--main-core %d: VPP may use the processors %s only", o.MainCore, listed(m.CPUs))
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
	first := m.CPUs[0]
	rank := func(cpu CPU) int {
		switch {
		case cpu.Node != c.main.Node:
			return 1
		case cpu == first:
			return 2
		}
		return 0
	}
	slices.SortStableFunc(rest, func(a, b CPU) int { return rank(a) - rank(b) })
	c.workers = rest[:count]
	slices.SortFunc(c.workers, func(a, b CPU) int { return a.ID - b.ID })
	return c, nil
}

// defaultWorkers leaves most processors to pods: a worker that polls takes all of its own.
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

// threads counts those that forward.
func (c cores) threads() int { return max(1, len(c.workers)) }

// listed writes processors as the kernel does without ranges.
func listed(cpus []CPU) string {
	words := make([]string, len(cpus))
	for i, cpu := range cpus {
		words[i] = strconv.Itoa(cpu.ID)
	}
	return strings.Join(words, ",")
}

// buffersFor counts the packet buffers that each NUMA node needs, and says for what.
func buffersFor(o *Options, m *Machine, c cores) (count int, reason string) {
	if o.Buffers != 0 {
		return o.Buffers, "as --buffers says"
	}
	count, reason = baseBuffers, fmt.Sprintf("%d as VPP has by default", baseBuffers)
	add := func(n int, what string) {
		if n > 0 {
			count += n
			reason += fmt.Sprintf(" + %d %s", n, what)
		}
	}
	add(workerBuffers*len(c.workers), "in the workers' hands")
	if m.VhostNet {
		add(tapRing*(o.Pods+1), fmt.Sprintf("in the rings of %d pods' taps and the node's own", o.Pods))
	}
	if o.ownsCard(DPDK) || o.ownsCard(AFXDP) {
		add(cardRings*c.threads(), "in the rings of "+o.Uplink)
	}
	if count > maxBuffers {
		return maxBuffers, fmt.Sprintf("the most that VPP has room for; wanted: %s", reason)
	}
	return count, reason
}

// bufferBytes is what VPP allocates for a buffer: an odd number of cache lines, which spreads buffers over the cache.
func (o *Options) bufferBytes() int {
	size := headers + dataSize
	if o.ownsCard(DPDK) {
		size += dpdkHeader
	}
	return (size/cacheLine | 1) * cacheLine
}

// pages says which pages VPP's memory is on.
type pages struct {
	buffers, heap string // Huge, Giga, or None
	ask           int    // buffers that VPP must be asked for to have those needed
	count         int    // of pages of the buffers, on each NUMA node
	reason        string
}

// choosePages takes hugepages only where all that is needed is free: VPP ends at start, or gets SIGBUS, where they do not
// suffice.
func choosePages(o *Options, m *Machine, c cores, buffers int) (pages, error) {
	asked := askOrdinary(o.bufferBytes(), buffers)
	ordinary := pages{buffers: None, heap: None, ask: asked, count: asked, reason: "as --hugepages says"}
	if o.Hugepages == None {
		return ordinary, o.forbidOrdinary("with --hugepages none")
	}
	var missing []string
	for _, size := range pageSizes {
		if o.Hugepages != Auto && o.Hugepages != size.name {
			continue
		}
		perPage := size.bytes / o.bufferBytes()
		p := pages{buffers: size.name, heap: None, ask: buffers, count: (buffers-1)/perPage + 1}
		lack := m.lacking(size.name, p.count)
		if lack == "" {
			p.reason = fmt.Sprintf("hugepages, %d on each NUMA node: fewer TLB misses than with ordinary pages", p.count)
			if size.name == Huge && m.hasRoom(c.main.Node, p.count, (heapFor(o)-1)/size.bytes+1) {
				p.heap = Huge
			}
			return p, nil
		}
		missing = append(missing, lack)
	}
	if o.Hugepages != Auto {
		return pages{}, fmt.Errorf("--hugepages %s: %s; reserve more (sysctl vm.nr_hugepages, or hugepages= of the kernel), or use --hugepages auto", o.Hugepages, missing[0])
	}
	ordinary.reason = missing[0]
	return ordinary, o.forbidOrdinary(missing[0])
}

// askOrdinary counts the buffers that VPP must be asked for on ordinary pages. It takes a page for each, lays buffers of the given
// size end to end, and leaves out those that cross from one page into the next.
func askOrdinary(size, needed int) int {
	const lines = ordinaryPage / cacheLine
	size /= cacheLine
	return (needed*size + lines - size - 1) / (lines - size)
}

// forbidOrdinary is an error where a network card needs hugepages.
func (o *Options) forbidOrdinary(why string) error {
	if o.ownsCard(DPDK) {
		return fmt.Errorf("--uplink-mode dpdk needs hugepages: %s", why)
	}
	return nil
}

// lacking says why each NUMA node cannot have the wanted hugepages; "" if it can.
func (m *Machine) lacking(size string, wanted int) string {
	for _, node := range m.Nodes {
		if free := node.Free[size]; free < wanted {
			return fmt.Sprintf("NUMA node %d has %d free hugepages of %s, %d are needed", node.ID, free, size, wanted)
		}
	}
	if limit, is := m.Limit[size]; is && limit < wanted*len(m.Nodes) {
		return fmt.Sprintf("this container may have %d hugepages of %s, %d are needed", limit, size, wanted*len(m.Nodes))
	}
	return ""
}

// hasRoom reports whether a NUMA node has hugepages of 2M for the heap beside those that each node has for buffers.
func (m *Machine) hasRoom(node, buffers, heap int) bool {
	if limit, is := m.Limit[Huge]; is && limit < buffers*len(m.Nodes)+heap {
		return false
	}
	return slices.ContainsFunc(m.Nodes, func(n Node) bool { return n.ID == node && n.Free[Huge] >= buffers+heap })
}

// interfaces counts what VPP may have: pods have one on the average beside memifs, and some are the node's own.
func (o *Options) interfaces() int { return o.Pods + o.Memifs + 16 }

func heapFor(o *Options) int { return roundUp(baseHeap+o.interfaces()*interfaceHeap, 64<<20) }

func statsFor(o *Options, c cores) int {
	return roundUp(baseStats+o.interfaces()*counterBytes*(1+len(c.workers)), 16<<20)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
