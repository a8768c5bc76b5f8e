package memif_test

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

// footprintPods is the environment variable with the number of pods for TestFootprint.
const footprintPods = "WEFT_FOOTPRINT_PODS"

const memifsOfAPod = 3

// TestFootprint measures memory, threads and descriptors of the programs, without pods, with pods of three connected
// memifs each, and under load. The limits of the manifests derive from the figures, which are in docs/operations.md.
func TestFootprint(t *testing.T) {
	pods, err := strconv.Atoi(os.Getenv(footprintPods))
	if err != nil {
		t.Skipf("a measurement: needs %s, the number of pods, such as 110", footprintPods)
	}
	l := newLab(t, node.Options{
		Memifs: memifsOfAPod * pods,
		Pools:  []node.Pool{{Name: "wide", Prefix: netip.MustParsePrefix("10.100.0.0/16")}},
	})
	l.try(l.Kubelet.Await(t.Context(), node.Memif, memifsOfAPod*pods))
	l.measure("no pods")

	var guests []*guest
	var addresses []netip.Addr
	for i := range pods {
		p, err := l.NewPod(fmt.Sprintf("p%d", i))
		l.try(err)
		p.Annotations = map[string]string{"contivpp.io/custom-if": "m1/memif,m2/memif,m3/memif"}
		g := &guest{lab: l, pod: p}
		g.containers, err = l.Admit(t.Context(), p, kubelettest.Container{Name: "c", Limit: memifsOfAPod})
		l.try(err)
		for _, link := range l.add(p)[1:] {
			addresses = append(addresses, link.Bare()[0])
		}
		guests = append(guests, g)
	}
	l.measure(fmt.Sprintf("%d pods, no memif connected", pods))

	clients := l.connectAll(guests)
	l.measure(fmt.Sprintf("%d memifs connected", len(clients)))

	from := l.neighbour("from")
	to, err := l.NewPod("to")
	l.try(err)
	target := l.add(to)[0].Bare()[0]
	// The dataplane writes each buffer of the clients' rings once, so the pages are charged to it.
	l.try(netns.Do(from.Netns, func() error { return fill(addresses, 1500) }))
	l.measure("all buffers of the memifs written")

	stop := make(chan struct{})
	highest := make(chan map[string]uint64)
	go func() { highest <- l.watch(stop) }()
	count, err := traffic.Flood(t.Context(),
		traffic.Path{From: from.Netns, FromLink: "eth0", To: to.Netns, Address: target}, "eth0", 10*time.Second)
	close(stop)
	most := <-highest
	l.try(err)
	l.measure(fmt.Sprintf("after a flood of %d packets, %.0f a second arrived", count.Sent, count.Rate()))
	for name, kib := range most {
		t.Logf("%-40s %s: at most %d KiB resident", "during the flood", name, kib)
	}
}

// connectAll connects to all memifs with the default options.
func (l *lab) connectAll(guests []*guest) (clients []*memif.Client) {
	l.Helper()
	for _, g := range guests {
		for id := range uint32(memifsOfAPod) {
			client, err := memif.Dial(l.Context(), memif.ClientConfig{
				Socket: inDirectory(g.containers[0], "memif.sock"), ID: id + 1, Spin: -1,
				Secret: memif.Secret(g.containers[0].Envs[memif.SecretVariable]),
			}, memif.ClientEvents{})
			l.try(err)
			l.Cleanup(func() { _ = client.Close() })
			clients = append(clients, client)
		}
	}
	for _, c := range clients {
		l.eventually(func() error {
			if _, connected := c.Info(); !connected {
				return fmt.Errorf("not connected")
			}
			return nil
		})
	}
	return clients
}

// fill sends to each address more datagrams than a ring has slots.
func fill(addresses []netip.Addr, times int) error {
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	payload := make([]byte, 1200)
	for range times {
		for _, to := range addresses {
			if _, err := conn.WriteToUDPAddrPort(payload, netip.AddrPortFrom(to, 9)); err != nil {
				return err
			}
		}
	}
	return nil
}

// processes returns the processes of the node, by program name.
func (l *lab) processes() map[string]int {
	all := map[string]int{"weft-agent": l.AgentPID(), "weft-vswitch": l.DataplanePID()}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", l.DataplanePID()))
	for _, task := range tasks {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", l.DataplanePID(), task.Name()))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(children))); err == nil {
			all["memif-broker"] = pid
		}
	}
	return all
}

// figures reads lines of a status file; values with a unit are in KiB.
func figures(pid int) map[string]uint64 {
	found := map[string]uint64{}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); err == nil {
			found[name] = n
		}
	}
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	found["descriptors"] = uint64(len(fds))
	return found
}

// measure logs the current figures of each program.
func (l *lab) measure(when string) {
	l.Helper()
	all := l.processes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := figures(all[name])
		l.Logf(
			"%-40s %-12s resident %6d KiB (anonymous %6d, file %6d, shared %6d, highest %6d), %3d threads, %4d descriptors",
			when, name,
			f["VmRSS"], f["RssAnon"], f["RssFile"], f["RssShmem"], f["VmHWM"], f["Threads"], f["descriptors"])
	}
}

// watch returns the maximum RSS of each program until stop is closed.
func (l *lab) watch(stop <-chan struct{}) map[string]uint64 {
	most := map[string]uint64{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for name, pid := range l.processes() {
			most[name] = max(most[name], figures(pid)["VmRSS"])
		}
		select {
		case <-tick.C:
		case <-stop:
			return most
		}
	}
}
