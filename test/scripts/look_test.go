package scripts_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// lookCommand: look NAME prints the MTU of eth0 in a sandbox, its IPv4 rules, and its IPv4 routes except the kernel's
// own, one per line.
func lookCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		usage(ts, "look NAME")
	}
	lines, err := look(on(ts).sandbox(ts, args[0]))
	ts.Check(err)
	for _, line := range lines {
		_, _ = fmt.Fprintln(ts.Stdout(), line)
	}
}

func look(b *sandbox) (lines []string, err error) {
	err = netns.Do(b.path, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		rules, err := netlink.RuleList(unix.AF_INET)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if r.Src != nil {
				lines = append(lines, fmt.Sprintf("rule from %s table %d", r.Src, r.Table))
			}
		}
		all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, LinkIndex: link.Attrs().Index}
		routes, err := netlink.RouteListFiltered(unix.AF_INET, all, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
		for _, r := range routes {
			if r.Table != unix.RT_TABLE_LOCAL && r.Protocol != unix.RTPROT_KERNEL {
				lines = append(lines, fmt.Sprintf("table %d %s via %s", r.Table, r.Dst, r.Gw))
			}
		}
		slices.Sort(lines)
		lines = slices.Insert(lines, 0, fmt.Sprintf("mtu %d", link.Attrs().MTU))
		return err
	})
	return lines, err
}

// loggedCommand: logged PATTERN waits until a line of the agent's log matches.
func loggedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		usage(ts, "logged PATTERN")
	}
	line, err := regexp.Compile(args[0])
	ts.Check(err)
	path := on(ts).node.AgentLog()
	ts.Check(eventually(timeout, func() error {
		log, err := os.ReadFile(path)
		if err == nil && !line.Match(log) {
			err = errors.New("no line of the agent's log matches " + args[0])
		}
		return err
	}))
}
