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

// attack is one kind of behaviour of a hostile pod.
type attack struct {
	name       string // also of the method
	finding    string // number of the finding in the security review; class: a variant of one
	interfaces string // of the attacker's pod
	members    int    // number of other pods, each with 14 interfaces on the layer 2 network
	restart    bool   // the dataplane restarts after the attack has started
	long       bool   // it disturbs the machine or takes long: not in the short form
	verify     func(context.Context, *stage) error
}

const oneMemif = "m1/memif"

// methods are the functions that attackers run until ctx ends, by the attack's name.
var methods = map[string]func(ctx context.Context, c job) error{
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
	"cni":         idle,
	"nothing":     busyLoop,
}

// attacks returns all attacks in the order of the findings.
func attacks() []attack {
	onWide := "x0/tap/" + wide
	return []attack{
		{name: "nothing", finding: "none", interfaces: oneMemif},
		{name: "close", finding: "1a", interfaces: oneMemif, verify: fewThreads},
		{name: "threads", finding: "1b", interfaces: oneMemif, verify: fewThreads},
		{name: "eventfd", finding: "3", interfaces: oneMemif, restart: true, long: true},
		{name: "sparse", finding: "4", interfaces: oneMemif, verify: fewPages},
		{name: "descriptors", finding: "5", interfaces: oneMemif},
		{name: "chains", finding: "5 class", interfaces: oneMemif},
		{name: "kicks", finding: "5 class", interfaces: oneMemif},
		{name: "routers", finding: "7", interfaces: onWide, verify: noRouter},
		{name: "broadcast", finding: "9", interfaces: onWide, members: 4, long: true},
		{name: "macs", finding: "9 class", interfaces: onWide},
		{name: "unread", finding: "10", interfaces: oneMemif},
		{name: "cni", finding: "11", interfaces: onWide, verify: malformedCalls},
		{name: "rings", finding: "class", interfaces: oneMemif},
		{name: "shrink", finding: "class", interfaces: oneMemif},
		{name: "reconnect", finding: "class", interfaces: oneMemif},
		{name: "strangers", finding: "class", interfaces: oneMemif},
		{name: "fragments", finding: "class", interfaces: onWide},
		{name: "unresolved", finding: "class", interfaces: onWide},
		{name: "frames", finding: "class", interfaces: onWide},
	}
}

// idle is the method of attacks that the runtime makes.
func idle(ctx context.Context, c job) error {
	c.underWay()
	<-ctx.Done()
	return nil
}

// busyLoop keeps one processor busy. It is the control for the other attacks.
func busyLoop(ctx context.Context, c job) error {
	c.underWay()
	for ctx.Err() == nil {
	}
	return nil
}

// mostThreads is far above the dataplane's own need.
const mostThreads = 100

func fewThreads(_ context.Context, s *stage) error {
	n, err := s.threads()
	if err == nil && n > mostThreads {
		err = fmt.Errorf("the dataplane has %d threads", n)
	}
	return err
}

// mostPages bounds the memory that the dataplane allocated and the pod keeps: the pod's rings, and a margin.
const mostPages = 64 << 20

// fewPages reads the attacker's reports of the memory that it keeps after its connections have ended.
func fewPages(_ context.Context, s *stage) error {
	var most, bytes int
	for _, line := range s.attacker.lines() {
		if n, _ := fmt.Sscanf(line, "left %d", &bytes); n == 1 {
			most = max(most, bytes)
		}
	}
	if most > mostPages {
		return fmt.Errorf("the pod keeps %d MiB that the dataplane allocated", most>>20)
	}
	return nil
}

// advertised is the prefix in the attacker's router advertisements.
var advertised = netip.MustParsePrefix("2001:db8:bad::/64")

// noRouter fails if a victim accepted the advertisements.
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
			if slices.ContainsFunc(routes, func(r netlink.Route) bool {
				return r.Gw.Equal(attackersLinkLocal.AsSlice())
			}) {
				return errors.New("a victim has a route through the attacker")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// malformedCalls runs the plugin with malformed arguments.
func malformedCalls(ctx context.Context, s *stage) error {
	fifo := filepath.Join(s.Dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		return err
	}
	defer os.Remove(fifo)
	long := strings.Repeat("a", 300)
	return errors.Join(
		s.execute(ctx, malformedCall{
			what:      "ADD with a FIFO as namespace",
			command:   "ADD",
			id:        "fifo",
			namespace: fifo,
			link:      "eth0",
		}),
		s.execute(ctx, malformedCall{
			what:     "DEL with a long container id",
			command:  "DEL",
			id:       long,
			link:     "eth0",
			succeeds: true,
		}),
		s.execute(ctx, malformedCall{
			what:     "DEL with an interface name that is not ASCII",
			command:  "DEL",
			id:       "odd",
			link:     "éth0",
			succeeds: true,
		}),
	)
}

// malformedCall is a call of the plugin, and whether it has to succeed or to fail.
type malformedCall struct {
	what                         string
	command, id, namespace, link string
	succeeds                     bool
}

// execute runs the plugin as a runtime does.
func (s *stage) execute(ctx context.Context, c malformedCall) error {
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
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+c.command, "CNI_CONTAINERID="+c.id, "CNI_NETNS="+c.namespace,
		"CNI_IFNAME="+c.link, "CNI_PATH=/")
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

// pluginConf returns the configuration of a list's first plugin, as a runtime passes it to the plugin.
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
	conf["cniVersion"] = all.CNIVersion
	conf["name"] = all.Name
	text, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("configuration of the plugin: %w", err)
	}
	return text, nil
}
