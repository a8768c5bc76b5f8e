package vppconf

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the resources of a node that VPP may use.
type Machine struct {
	CPUs     []CPU  // that this process may use, ascending
	Confined bool   // the node has more processors than this process may use
	Nodes    []Node // with memory, ascending
	VhostNet bool   // taps are possible

	Limit map[string]int // maximum number of hugepages of the container on all nodes, by size; missing: unlimited

	files fs.FS // the root directory, for network cards
}

// CPU is a processor with its NUMA node.
type CPU struct{ ID, Node int }

// Node is a NUMA node with its free hugepages by size.
type Node struct {
	ID   int
	Free map[string]int
}

// pageSizes are the hugepages that VPP supports, with their names in sysfs and in a cgroup.
var pageSizes = []struct {
	name          string
	bytes         int
	sysfs, cgroup string
}{
	{Huge, 2 << 20, "hugepages-2048kB", "hugetlb.2MB"},
	{Giga, 1 << 30, "hugepages-1048576kB", "hugetlb.1GB"},
}

// AllowedCPUs lists the processors that this process may use. In a container these are the processors of the container.
func AllowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPU affinity of this process: %w", err)
	}
	var allowed []int
	for id := 0; len(allowed) < set.Count(); id++ {
		if set.IsSet(id) {
			allowed = append(allowed, id)
		}
	}
	return allowed, nil
}

// Detect reads the resources of the node with the given root directory, for a process that may use the allowed
// processors.
func Detect(root fs.FS, allowed []int) (Machine, error) {
	m := Machine{files: root, Limit: map[string]int{}}
	online, err := readList(root, "sys/devices/system/cpu/online")
	if err != nil {
		return m, err
	}
	for _, id := range allowed {
		if slices.Contains(online, id) {
			m.CPUs = append(m.CPUs, CPU{ID: id})
		}
	}
	if len(m.CPUs) == 0 {
		return m, fmt.Errorf("none of the allowed processors %v is online", allowed)
	}
	m.Confined = len(m.CPUs) < len(online)
	_, err = fs.Stat(root, "dev/vhost-net")
	m.VhostNet = err == nil
	return m, errors.Join(m.detectLimits(), m.detectNodes())
}

// detectNodes reads the NUMA nodes. A machine without NUMA is one node.
func (m *Machine) detectNodes() error {
	const dir = "sys/devices/system/node"
	nodes, err := readList(m.files, dir+"/has_memory")
	if errors.Is(err, fs.ErrNotExist) {
		return m.addNode(0, "sys/kernel/mm/hugepages", nil)
	}
	if err != nil {
		return err
	}
	for _, id := range nodes {
		at := fmt.Sprintf("%s/node%d", dir, id)
		cpus, err := readList(m.files, at+"/cpulist")
		if err != nil {
			return err
		}
		if err := m.addNode(id, at+"/hugepages", cpus); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) addNode(id int, hugepages string, cpus []int) error {
	node := Node{ID: id, Free: map[string]int{}}
	for _, size := range pageSizes {
		free, err := readNumber(m.files, path.Join(hugepages, size.sysfs, "free_hugepages"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		node.Free[size.name] = free
	}
	for i := range m.CPUs {
		if slices.Contains(cpus, m.CPUs[i].ID) {
			m.CPUs[i].Node = id
		}
	}
	m.Nodes = append(m.Nodes, node)
	return nil
}

// detectLimits reads the hugepage limits of the container, from cgroup v2 or v1.
func (m *Machine) detectLimits() error {
	for _, size := range pageSizes {
		for _, file := range []string{
			"sys/fs/cgroup/" + size.cgroup + ".max", "sys/fs/cgroup/hugetlb/" + size.cgroup + ".limit_in_bytes",
		} {
			word, err := readWord(m.files, file)
			if errors.Is(err, fs.ErrNotExist) || word == "max" {
				continue
			}
			if err != nil {
				return err
			}
			bytes, err := number(file, word)
			if err != nil {
				return err
			}
			m.Limit[size.name] = bytes / size.bytes
		}
	}
	return nil
}

// hasInterface reports whether the kernel has an interface of the name.
func (m *Machine) hasInterface(name string) bool {
	_, err := fs.Stat(m.files, "sys/class/net/"+name)
	return err == nil
}

// pciAddress returns the PCI address of a network card. The card is a PCI address or the name of a kernel interface.
func (m *Machine) pciAddress(card string) (string, error) {
	if strings.Count(card, ":") == 2 {
		return card, nil
	}
	file := "sys/class/net/" + card + "/device/uevent"
	text, err := fs.ReadFile(m.files, file)
	if err != nil {
		return "", fmt.Errorf("find the PCI address of %s: %w", card, err)
	}
	for line := range strings.Lines(string(text)) {
		if address, ok := strings.CutPrefix(strings.TrimSpace(line), "PCI_SLOT_NAME="); ok {
			return address, nil
		}
	}
	return "", fmt.Errorf("find the PCI address of %s: /%s has no PCI_SLOT_NAME, so the card is not a PCI device", card,
		file)
}

func readWord(root fs.FS, file string) (string, error) {
	text, err := fs.ReadFile(root, file)
	return strings.TrimSpace(string(text)), err
}

func readNumber(root fs.FS, file string) (int, error) {
	word, err := readWord(root, file)
	if err != nil {
		return 0, err
	}
	return number(file, word)
}

func number(file, word string) (int, error) {
	n, err := strconv.ParseUint(word, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("read /%s: %w", file, err)
	}
	return int(n), nil
}

// readList reads a list in the kernel's format, such as 0-3,8.
func readList(root fs.FS, file string) ([]int, error) {
	words, err := readWord(root, file)
	if err != nil || words == "" {
		return nil, err
	}
	var list []int
	for word := range strings.SplitSeq(words, ",") {
		low, high, isRange := strings.Cut(word, "-")
		if !isRange {
			high = low
		}
		first, err := number(file, low)
		if err != nil {
			return nil, err
		}
		last, err := number(file, high)
		if err != nil {
			return nil, err
		}
		for id := first; id <= last; id++ {
			list = append(list, id)
		}
	}
	return list, nil
}
