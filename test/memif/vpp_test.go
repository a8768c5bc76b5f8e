package memif_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/pages"
)

// The commands of docs/functions.md connect a VPP in a pod: with a bridge domain and with routes, over both families,
// to weft-vswitch and to the VPP of the node. It connects again after that was killed.
func TestVPPInAPodRunsWithTheCommandsOfTheDocumentation(t *testing.T) {
	environment := dataplane.RequireVPP(t)
	for name, embedded := range map[string]bool{"weft-vswitch": true, "VPP": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, node.Options{Embedded: embedded, Networks: networks()})
			neighbours := map[string]*node.Pod{"m1": l.attached("blue"), "m2": l.attached("red")}
			d, containers := l.admit("function", "m1/memif/blue, m2/memif/red", "", kubelettest.Container{
				Name:  "vpp",
				Limit: 2,
			})
			links := l.add(d)[1:]
			c := containers[0]
			maps.Copy(c.Envs, environment)
			commands := documentedVPP(t, l.read(inDirectory(c, "interfaces.json")))
			reachable := func() {
				for _, m := range links {
					for _, address := range m.Bare() {
						l.reachBy(neighbours[m.Name], "x0", address)
					}
				}
			}
			vpp := l.start(d, c, "/bin/sh", "-c", "exec "+commands[0])
			l.eventually(func() error { return vpp.run("vppctl show version") })
			for _, block := range commands[1:3] {
				l.try(vpp.run(block))
			}
			reachable()
			l.try(vpp.run(commands[3]))
			for pattern, times := range map[string]int{
				"flags admin-up slave connected": 2,
				"3 sent, [23] received":          2,
			} {
				if n := len(regexp.MustCompile(pattern).FindAllString(vpp.out.String(), -1)); n != times {
					t.Errorf("%d times %q, want %d", n, pattern, times)
				}
			}
			l.try(vpp.run(commands[4]))
			reachable()
			l.try(unix.Kill(l.DataplanePID(), unix.SIGKILL))
			reachable()
			if t.Failed() {
				t.Log(vpp.out)
			}
		})
	}
}

// attached returns a pod with an interface x0 of a network.
func (l *lab) attached(network string) *node.Pod {
	l.Helper()
	p, err := l.NewPod(network)
	l.try(err)
	p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/veth/" + network}
	l.add(p)
	return p
}

// run runs a script in the container of a running program, as kubectl exec does, and adds its output to that of the
// program.
func (p *program) run(script string) error {
	cmd := exec.Command("nsenter", "--target", fmt.Sprint(p.Process.Pid), "--mount", "--net", "sh", "-e", "-c", script)
	cmd.Env = p.Env
	cmd.Stdout = p.out
	cmd.Stderr = p.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, p.out)
	}
	return nil
}

// documentedVPP returns the blocks of commands in the section "VPP in the pod" of docs/functions.md, with the values of
// interfaces.json in place of the page's.
func documentedVPP(t *testing.T, description string) (blocks []string) {
	t.Helper()
	const page = "../../docs/functions.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	interfaces, err := memif.ParseDescriptions([]byte(description))
	if err != nil {
		t.Fatal(err)
	}
	section := between(t, string(text), "## VPP in the pod\n", "\n## ")
	m1 := interfaces[0]
	m2 := interfaces[1]
	for _, value := range [][2]string{
		{"02:fe:0a:05:00:07", m1.MAC.String()}, {"10.5.0.7/16", m1.Addresses[0].String()}, {
			"fd00:5::7/64", m1.Addresses[1].String(),
		},
		{"10.5.0.1", m1.Gateways[0].String()}, {"packet 1450 memif1/1", fmt.Sprintf("packet %d memif1/1", m1.MTU)},
		{"02:fe:0a:06:00:09", m2.MAC.String()}, {"10.6.0.9/32", m2.Addresses[0].String()}, {
			"fd00:6::9/128", m2.Addresses[1].String(),
		},
		{"10.6.0.1/32 via memif", m2.Routes[0].Destination.String() + " via memif"}, {
			"10.6.0.0/16", m2.Routes[1].Destination.String(),
		},
		{"10.6.0.1 ", m2.Gateways[0].String() + " "}, {
			"fd00:6::/64 via fe80::1", fmt.Sprintf("%s via %s", m2.Routes[2].Destination, m2.Gateways[1]),
		},
		{"packet 1450 memif1/2", fmt.Sprintf("packet %d memif1/2", m2.MTU)},
	} {
		if !strings.Contains(section, value[0]) {
			t.Errorf("%s: the section has no %q", page, value[0])
		}
		section = strings.ReplaceAll(section, value[0], value[1])
	}
	for _, b := range pages.Parse(page, []byte(section)).Blocks {
		if b.IsShell() {
			blocks = append(blocks, b.Text)
		}
	}
	const parts = 5 // the container's command, those of both interfaces, the check, and the mode of the queues
	if len(blocks) != parts {
		t.Fatalf("%s: %d blocks of commands in the section, want %d", page, len(blocks), parts)
	}
	return blocks
}

// between returns the part of a text after begin and before end.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, begin)
	part, _, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("no text between %q and %q", begin, end)
	}
	return part
}
