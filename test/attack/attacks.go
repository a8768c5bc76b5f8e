package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// attack is one thing that a hostile pod does.
type attack struct {
	name       string // of the method, too
	finding    string // of which review, and class
	interfaces string // of the attacker's pod
	members    int    // other pods with 14 interfaces each on the layer 2 network
	restart    bool   // the dataplane starts anew once the attack is under way
	long       bool   // it disturbs the machine, or takes long: not in the short form
	judge      func(context.Context, *stage) error
}

const oneMemif = "m1/memif"

// methods are what attackers' processes do, by the attack's name, until ctx ends.
var methods = map[string]func(ctx context.Context, c campaign) error{
	"close":       lingeringDescriptors,
	"threads":     manyLingeringDescriptors,
	"eventfd":     blockingEventfd,
	"sparse":      sparseMemory,
	"descriptors": wrongDescriptors,
	"unread":      unreadAnswers,
	"rings":       changingRings,
	"shrink":      shrinkingMemory,
	"chains":      endlessChains,
	"reconnect":   reconnects,
	"strangers":   strangers,
	"kicks":       kicks,
	"routers":     routerAdvertisements,
	"broadcast":   broadcasts,
	"macs":        randomMACs,
	"fragments":   fragments,
	"unresolved":  unresolvedNeighbours,
	"frames":      randomFrames,
	"cni":         wait,
	"nothing":     burn,
}

// attacks are all, in the order of the findings.
func attacks() []attack {
	onWide := "x0/tap/" + wide
	return []attack{
		{name: "nothing", finding: "none", interfaces: oneMemif},
		{name: "close", finding: "1a", interfaces: oneMemif, judge: fewThreads},
		{name: "threads", finding: "1b", interfaces: oneMemif, judge: fewThreads},
		{name: "eventfd", finding: "3", interfaces: oneMemif, restart: true, long: true},
		{name: "sparse", finding: "4", interfaces: oneMemif, judge: fewPages},
		{name: "descriptors", finding: "5", interfaces: oneMemif},
		{name: "chains", finding: "5 class", interfaces: oneMemif},
		{name: "kicks", finding: "5 class", interfaces: oneMemif},
		{name: "routers", finding: "7", interfaces: onWide, judge: noRouter},
		{name: "broadcast", finding: "9", interfaces: onWide, members: 4, long: true},
		{name: "macs", finding: "9 class", interfaces: onWide},
		{name: "unread", finding: "10", interfaces: oneMemif},
		{name: "cni", finding: "11", interfaces: onWide, judge: oddCalls},
		{name: "rings", finding: "class", interfaces: oneMemif},
		{name: "shrink", finding: "class", interfaces: oneMemif},
		{name: "reconnect", finding: "class", interfaces: oneMemif},
		{name: "strangers", finding: "class", interfaces: oneMemif},
		{name: "fragments", finding: "class", interfaces: onWide},
		{name: "unresolved", finding: "class", interfaces: onWide},
		{name: "frames", finding: "class", interfaces: onWide},
	}
}

// wait is the method of attacks that are made by the operations of the runtime.
func wait(ctx context.Context, c campaign) error {
	c.underWay()
	<-ctx.Done()
	return nil
}

// burn uses a processor and does nothing else. It is the control for the other attacks.
func burn(ctx context.Context, c campaign) error {
	c.underWay()
	for ctx.Err() == nil {
	}
	return nil
}

// mostThreads is far more than the dataplane needs.
const mostThreads = 100

func fewThreads(_ context.Context, s *stage) error {
	n, err := s.threads()
	if err == nil && n > mostThreads {
		err = fmt.Errorf("the dataplane has %d threads", n)
	}
	return err
}

// mostPages is what a pod may have the dataplane pay for, of memory that it keeps: what its rings need, and some.
const mostPages = 64 << 20

// fewPages reads what the attacker says of the memory that it keeps after its connections have ended.
func fewPages(_ context.Context, s *stage) error {
	var most, bytes int
	for _, line := range s.attacker.lines() {
		if n, _ := fmt.Sscanf(line, "left %d", &bytes); n == 1 {
			most = max(most, bytes)
		}
	}
	if most > mostPages {
		return fmt.Errorf("the dataplane has paid for %d MiB that the pod keeps", most>>20)
	}
	return nil
}

// advertised is what the attacker's advertisements announce.
var advertised = netip.MustParsePrefix("2001:db8:bad::/64")

// noRouter expects that no victim follows the advertisements.
func noRouter(_ context.Context, s *stage) error {
	for _, v := range s.victims {
		err := netns.Do(v.Netns, func() error {
			addresses, err := netlink.AddrList(nil, netlink.FAMILY_V6)
			if err != nil {
				return err
			}
			for _, a := range addresses {
				if ip, _ := netip.AddrFromSlice(a.IP); advertised.Contains(ip) {
					return fmt.Errorf("a victim has the address %s of the attacker's advertisement", ip)
				}
			}
			routes, err := netlink.RouteList(nil, netlink.FAMILY_V6)
			if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.Equal(attackersLinkLocal.AsSlice()) }) {
				return errors.New("a victim has a route by the attacker")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// oddCalls are operations that a runtime makes of what others chose.
func oddCalls(ctx context.Context, s *stage) error {
	fifo := filepath.Join(s.Dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		return err
	}
	defer os.Remove(fifo)
	long := strings.Repeat("a", 300)
	return errors.Join(
		s.execute(ctx, oddCall{what: "ADD with a FIFO as namespace", command: "ADD", id: "fifo", namespace: fifo, link: "eth0"}),
		s.execute(ctx, oddCall{what: "DEL with a long container id", command: "DEL", id: long, link: "eth0", succeeds: true}),
		s.execute(ctx, oddCall{what: "DEL with an interface name that is not ASCII", command: "DEL", id: "odd", link: "éth0", succeeds: true}),
	)
}

// oddCall is one, and whether it has to succeed or to be refused.
type oddCall struct {
	what                         string
	command, id, namespace, link string
	succeeds                     bool
}

// execute runs the plugin as a runtime does.
func (s *stage) execute(ctx context.Context, c oddCall) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conflist, err := s.Conflist()
	if err != nil {
		return err
	}
	conf, err := pluginConf(conflist)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.Program("weft-cni"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+c.command, "CNI_CONTAINERID="+c.id, "CNI_NETNS="+c.namespace, "CNI_IFNAME="+c.link, "CNI_PATH=/")
	cmd.Stdin = bytes.NewReader(conf)
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s hangs", c.what)
	case (err == nil) != c.succeeds:
		return fmt.Errorf("%s: %w: %s", c.what, err, out)
	}
	return nil
}

// pluginConf is the configuration of the first plugin of a list, as a runtime gives it to that plugin.
func pluginConf(list []byte) ([]byte, error) {
	var all struct {
		CNIVersion string           `json:"cniVersion"`
		Name       string           `json:"name"`
		Plugins    []map[string]any `json:"plugins"`
	}
	if err := json.Unmarshal(list, &all); err != nil {
		return nil, err
	}
	if len(all.Plugins) == 0 {
		return nil, errors.New("no plugin")
	}
	conf := maps.Clone(all.Plugins[0])
	conf["cniVersion"], conf["name"] = all.CNIVersion, all.Name
	text, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("configuration of the plugin: %w", err)
	}
	return text, nil
}
