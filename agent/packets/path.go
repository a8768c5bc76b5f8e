package packets

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// The format of VPP's trace: a line with time and name for each graph node, and indented lines with its actions.
var (
	nodeLine = regexp.MustCompile(`^(\d{2,}):(\d\d):(\d\d):(\d{6}): (\S+)$`)
	flowLine = regexp.MustCompile(
		`^\s*(ICMP6|ICMP|ICMPv6|TCP|UDP|IP6_\w+|protocol \d+): ([0-9a-f.:]+) -> ([0-9a-f.:]+)$`)
	portsLine = regexp.MustCompile(`^\s*(TCP|UDP): (\d+) -> (\d+)`)
	icmpLine  = regexp.MustCompile(`^\s*(?:ICMP6?|ICMPv6) ((?:type \d+ code \d+)|[a-z_]+)`)
	arpLine   = regexp.MustCompile(`^\s*(request|reply), type ethernet/IP4`)
	arpSender = regexp.MustCompile(`^\s*([0-9a-f:]+)/([0-9.]+) -> (?:[0-9a-f:]+/)?([0-9.]+)$`)
	linkLine  = regexp.MustCompile(`^\s*(\S+): ([0-9a-f:]{17}) -> ([0-9a-f:]{17})`)
)

const (
	// maxPath limits the steps of a path, maxText the text of a step: a trace is not trusted.
	maxPath = 64
	maxText = 400
)

// parsePath splits the text of a trace into steps.
func parsePath(text string) []*operatorv1.TraceStep {
	var steps []*operatorv1.TraceStep
	for line := range strings.Lines(text) {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n\x00 "), "?")
		if m := nodeLine.FindStringSubmatch(line); m != nil {
			if len(steps) == maxPath {
				break
			}
			steps = append(steps, &operatorv1.TraceStep{Node: m[5], At: durationpb.New(traceTime(m[1:5]))})
		} else if line != "" && len(steps) > 0 {
			s := steps[len(steps)-1]
			if len(s.Text)+len(line) < maxText {
				s.Text += line + "\n"
			}
		}
	}
	return steps
}

func traceTime(parts []string) time.Duration {
	var total time.Duration
	for i, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Microsecond} {
		n, _ := strconv.Atoi(parts[i]) // digits; too many of them are the largest number
		total += time.Duration(min(n, 1<<20)) * unit
	}
	return total
}

// headers are the first headers that the nodes of a path printed.
type headers struct{ link, flow, ports, arp string }

// summarise describes the packet of a path by its first headers.
func summarise(steps []*operatorv1.TraceStep) string {
	var h headers
	for _, s := range steps {
		for line := range strings.Lines(s.Text) {
			h.add(strings.TrimRight(line, "\n"))
			if strings.Contains(h.arp, ">") {
				return h.arp
			}
		}
	}
	switch {
	case h.flow != "":
		return h.flow + h.ports
	case h.link != "":
		return h.link
	}
	return "headers unknown"
}

// add adds the header in a line, unless an earlier line had one of that layer.
func (h *headers) add(line string) {
	if m := linkLine.FindStringSubmatch(line); m != nil && h.link == "" {
		h.link = fmt.Sprintf("%s %s > %s", m[1], m[2], m[3])
		return
	}
	if m := flowLine.FindStringSubmatch(line); m != nil && h.flow == "" {
		h.flow = fmt.Sprintf("%s %s > %s", m[1], m[2], m[3])
		return
	}
	if h.flow != "" && h.ports == "" {
		h.addTransport(line)
		return
	}
	if m := arpLine.FindStringSubmatch(line); m != nil {
		h.arp = "ARP " + m[1]
	} else if m := arpSender.FindStringSubmatch(line); m != nil && h.arp != "" {
		h.arp = fmt.Sprintf("%s %s > %s", h.arp, m[2], m[3])
	}
}

// addTransport adds the ports or the message of a packet with a flow.
func (h *headers) addTransport(line string) {
	if m := portsLine.FindStringSubmatch(line); m != nil {
		h.ports = fmt.Sprintf(", ports %s > %s", m[2], m[3])
	} else if m := icmpLine.FindStringSubmatch(line); m != nil {
		h.ports = ", " + icmpName(m[1])
	}
}

// icmpNames are the messages that tests of a connection send, with VPP's names.
var icmpNames = map[string]string{
	"type 8 code 0": "echo request", "type 0 code 0": "echo reply", "type 128 code 0": "echo request",
	"type 129 code 0": "echo reply",
	"type 135 code 0": "neighbour solicitation", "type 136 code 0": "neighbour advertisement",
	"type 133 code 0": "router solicitation",
}

func icmpName(s string) string {
	if name, ok := icmpNames[s]; ok {
		return name
	}
	return strings.ReplaceAll(s, "_", " ")
}

// outcome tells from the last steps what became of the packet.
func outcome(steps []*operatorv1.TraceStep) (text string, dropped bool) {
	for _, s := range slices.Backward(steps) {
		detail := lastLine(s.Text)
		switch {
		case s.Node == "drop":
			if reason := nullRoute(steps); reason != "" {
				return "dropped: " + reason, true
			}
			return "dropped: " + dropReason(detail), true
		case strings.HasSuffix(s.Node, "-drop"):
			text = "dropped: " + s.Node
			dropped = true
		case dropped:
			return text, true
		case strings.HasSuffix(s.Node, "-tx"),
			strings.HasSuffix(s.Node, "-output") && s.Node != "interface-output" && s.Node != "l2-output":
			return "sent on " + strings.TrimSuffix(strings.TrimSuffix(s.Node, "-tx"), "-output"), false
		case strings.HasPrefix(detail, "handled by the dataplane"), strings.HasPrefix(s.Node, "punt"),
			strings.HasSuffix(s.Node, "-local"),
			strings.HasSuffix(s.Node, "-reply"):
			return "handled by the dataplane" + strings.TrimPrefix(": "+detail, ": handled by the dataplane"), false
		}
	}
	if text == "" && len(steps) > 0 {
		text = "ended in " + steps[len(steps)-1].Node
	}
	return text, dropped
}

// nullRoute returns the reason of a drop by a route of VPP that discards packets. VPP counts these drops under the
// reason of another node.
func nullRoute(steps []*operatorv1.TraceStep) string {
	for _, s := range steps {
		if s.Node != "ip4-null" && s.Node != "ip6-null" {
			continue
		}
		if strings.Contains(s.Text, "send-unreachable") {
			return "the route to the destination is unreachable (" + s.Node + ")"
		}
		return "the route to the destination discards packets (" + s.Node + ")"
	}
	return ""
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// dropReasons are the frequent reasons in words, by node and error of VPP.
var dropReasons = []struct{ suffix, words string }{
	{"input ACL misses", "the source address or MAC is not the pod's (anti-spoofing)"},
	{"ACL deny packets", "an access list denies it"},
	{"l3 mac mismatch", "the destination MAC is not the dataplane's"},
	{"L3 MAC mismatch", "the destination MAC is not the dataplane's"},
	{"no route", "no route to the destination"},
	{"a route is unreachable", "the route to the destination is unreachable"},
	{"time_expired", "its TTL has expired"},
	{"ip4 ttl <= 1", "its TTL has expired"},
	{"mtu_exceeded", "it exceeds the MTU and must not be fragmented"},
	{"ip4 spoofed local-address packet drops", "its source is an address of the dataplane"},
	{"spoofed_local_packets", "its source is an address of the dataplane"},
	{"Reflection Drop", "its destination is behind the interface it came from"},
	{"L2 replication complete", "no other member of the bridge domain is up"},
	{"L2 split horizon drops", "members of the same split-horizon group do not send to each other"},
	{"L2 forward misses", "the destination MAC is unknown, and unknown MACs are not flooded"},
	{"storm limit exceeded", "the interface floods more than the limit"},
	{"interface is down", "the output interface is down"},
	{"interface is deleted", "the output interface is deleted or not connected"},
	{"multicast or broadcast not forwarded", "multicast and broadcast are not routed"},
	{"multicast not forwarded", "multicast is not routed"},
	{"L2 mac move violations", "another interface has this source MAC"},
}

// dropReason adds words to an error of the dataplane.
func dropReason(detail string) string {
	for _, r := range dropReasons {
		if strings.HasSuffix(detail, r.suffix) {
			return r.words + " (" + detail + ")"
		}
	}
	return detail
}

// interfaceNames replaces the dataplane's names of interfaces.
type interfaceNames struct {
	pattern *regexp.Regexp // nil: no names
	names   map[string]string
}

func newInterfaceNames(names map[string]string) interfaceNames {
	if len(names) == 0 {
		return interfaceNames{}
	}
	quoted := make([]string, 0, len(names))
	for name := range names {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	slices.SortFunc(quoted, func(a, b string) int { return len(b) - len(a) }) // the longest match first
	return interfaceNames{
		names:   names,
		pattern: regexp.MustCompile(`(^|[\s:])(` + strings.Join(quoted, "|") + `)($|[\s,]|-output|-tx)`),
	}
}

func (n interfaceNames) replace(s string) string {
	if n.pattern == nil {
		return s
	}
	return n.pattern.ReplaceAllStringFunc(s, func(match string) string {
		m := n.pattern.FindStringSubmatch(match)
		return m[1] + n.names[m[2]] + m[3]
	})
}
