package vppconf

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// files creates a root directory with the given contents by path.
func files(contents map[string]string) fs.FS {
	root := fstest.MapFS{}
	for name, text := range contents {
		root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return root
}

// numaNode returns the sysfs files of a NUMA node with its processors and free hugepages of 2M and 1G.
func numaNode(id int, cpus string, huge, giga int) map[string]string {
	at := fmt.Sprintf("sys/devices/system/node/node%d/", id)
	return map[string]string{
		at + "cpulist": cpus,
		at + "hugepages/hugepages-2048kB/free_hugepages":    fmt.Sprint(huge),
		at + "hugepages/hugepages-1048576kB/free_hugepages": fmt.Sprint(giga),
	}
}

// node creates a root directory with the given processors.
func node(online, memory string, parts ...map[string]string) fs.FS {
	all := map[string]string{"sys/devices/system/cpu/online": online, "sys/devices/system/node/has_memory": memory}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return files(all)
}

func upTo(n int) (cpus []int) {
	for id := range n {
		cpus = append(cpus, id)
	}
	return cpus
}

func TestDetectReadsTheResourcesOfTheProcess(t *testing.T) {
	single := map[string]string{
		"sys/devices/system/cpu/online":                                "0",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages":      "30",
		"sys/fs/cgroup/hugetlb/hugetlb.2MB.limit_in_bytes":             "20971520",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":     "7",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/surplus_hugepage": "7",
	}
	tests := []struct {
		name    string
		root    fs.FS
		allowed []int
		want    string
	}{
		{
			"all processors of two NUMA nodes", node("0-3", "0-1", numaNode(0, "0,2", 5, 1), numaNode(1, "1,3", 6, 0)),
			upTo(4),
			"[{0 0} {1 1} {2 0} {3 1}] false [{0 map[1G:1 2M:5]} {1 map[1G:0 2M:6]}] map[] false",
		},
		{
			"a processor that is offline", node("0,2-3", "0", numaNode(0, "0,2-3", 0, 0)), upTo(4),
			"[{0 0} {2 0} {3 0}] false [{0 map[1G:0 2M:0]}] map[] false",
		},
		{
			"a part of the processors", node("0-7", "0", numaNode(0, "0-7", 0, 0)), []int{2, 3},
			"[{2 0} {3 0}] true [{0 map[1G:0 2M:0]}] map[] false",
		},
		{"a container with fewer hugepages than are free", node("0", "0", numaNode(0, "0", 100, 9), map[string]string{
			"sys/fs/cgroup/hugetlb.2MB.max": "67108864", "sys/fs/cgroup/hugetlb.1GB.max": "max"}), upTo(1),
			"[{0 0}] false [{0 map[1G:9 2M:100]}] map[2M:32] false"},
		{"no NUMA, cgroup v1", files(single), upTo(1), "[{0 0}] false [{0 map[2M:30]}] map[2M:10] false"},
		{
			"vhost-net", node("0", "0", numaNode(0, "0", 0, 0), map[string]string{"dev/vhost-net": ""}), upTo(1),
			"[{0 0}] false [{0 map[1G:0 2M:0]}] map[] true",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Detect(tt.root, tt.allowed)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(m.CPUs, m.Confined, m.Nodes, m.Limit, m.VhostNet); got != tt.want {
				t.Errorf("detected %s, want %s", got, tt.want)
			}
		})
	}
}

func TestDetectNamesUnreadableFiles(t *testing.T) {
	for want, root := range map[string]fs.FS{
		"open sys/devices/system/cpu/online":                           files(nil),
		`read /sys/devices/system/cpu/online: strconv.ParseUint: pars`: node("many", "0"),
		"open sys/devices/system/node/node0/cpulist":                   node("0", "0"),
		"none of the allowed processors [0] is online":                 node("4-7", "0"),
	} {
		if _, err := Detect(root, []int{0}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want one that starts with %q", err, want)
		}
	}
}

func TestAllowedCPUsAreSorted(t *testing.T) {
	allowed, err := AllowedCPUs()
	if err != nil || len(allowed) == 0 || !slices.IsSorted(allowed) {
		t.Errorf("allowed: %v (%v)", allowed, err)
	}
}
