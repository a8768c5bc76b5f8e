package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// editing is a pod of a cluster whose annotations are edited while it runs.
type editing struct {
	*lab
	server *k8stest.Server
	pod    *node.Pod
	result []byte // of its ADD

	containers []kubelettest.Container // with devices
}

func newEditing(t *testing.T, annotations map[string]string, containers ...kubelettest.Container) *editing {
	t.Helper()
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{Memifs: 2 * len(containers)})
	e := &editing{lab: l, server: server, pod: l.pod("a")}
	e.network("red", "10.6.0.0/24")
	l.eventually("the agent has both networks", func() bool {
		return len(l.logged("set 2 networks (from cluster)")) > 0
	})
	e.pod.Namespace = "lab"
	if len(containers) > 0 {
		var err error
		e.containers, err = l.Admit(t.Context(), e.pod, containers...)
		must.Succeed(t, err)
	}
	l.put(server, e.pod, annotations)
	e.result = l.cni("ADD", e.pod, nil)
	return e
}

// edit replaces the requested interfaces.
func (e *editing) edit(interfaces, options string) {
	e.Helper()
	annotations := map[string]string{customInterfaces: interfaces}
	if options != "" {
		annotations[customOptions] = options
	}
	e.put(e.server, e.pod, annotations)
}

// links lists the links in the pod with their IPv4 addresses, without lo and eth0.
func (e *editing) links() string {
	e.Helper()
	var links []string
	netnstest.Do(e.T, e.pod.Netns, func() {
		out, err := exec.CommandContext(e.Context(), "ip", "-o", "-4", "address", "show").Output()
		must.Succeed(e.T, err)
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); fields[1] != "lo" && fields[1] != "eth0" {
				links = append(links, fields[1]+" "+fields[3])
			}
		}
	})
	slices.Sort(links)
	return strings.Join(links, ", ")
}

// has waits until the pod has these links.
func (e *editing) has(links string) {
	e.Helper()
	e.eventually("the pod has "+links, func() bool { return e.links() == links })
}

// told waits for an Event about the edits of the pod.
func (e *editing) told(reason, text string) {
	e.Helper()
	e.eventually(reason+": "+text, func() bool {
		for _, event := range eventsOf(e.T, e.server) {
			if event.Reason == reason && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	})
}

// Interfaces come and go with the annotations of a running pod: made, changed, refused, removed, again, while the agent
// is away, and after the switch was off. The main interface loses no packet, and nothing is left behind.
func TestEditedAnnotationsChangeTheInterfacesOfARunningPod(t *testing.T) {
	e := newEditing(t, map[string]string{customInterfaces: "t1/tap/blue"})
	e.has("t1 10.5.0.2/24")
	const gateway = "10.5.0.1"
	e.reaches(e.pod.Netns, gateway)
	first := e.snapshot()
	stream := e.stream()

	e.edit("t1/tap/blue, t2/tap/red", "")
	e.has("t1 10.5.0.2/24, t2 10.6.0.2/32")
	e.told("WeftInterfacesChanged", "made: t2 on network red")
	e.reaches(e.pod.Netns, "10.6.0.1")
	e.reaches(e.pod.Netns, gateway)
	e.check(e.pod, e.result)
	e.published("t1 [10.5.0.2] t2 [10.6.0.2]")

	plan := e.plan("t1/tap/blue, t3/tap/red")
	if !strings.Contains(plan, "made: t3 on network red; removed: t2") || !strings.Contains(plan, "10.6.0.3/32") {
		t.Errorf("plan of the edit: %s", plan)
	}
	e.has("t1 10.5.0.2/24, t2 10.6.0.2/32")

	e.edit("t1/tap/blue, t2/tap/nosuch", "")
	e.told("WeftChangeFailed", `unknown network "nosuch"`)
	e.has("t1 10.5.0.2/24, t2 10.6.0.2/32")
	e.reaches(e.pod.Netns, "10.6.0.1")
	e.network("nosuch", "10.7.0.0/24") // the edit that failed is tried again
	e.has("t1 10.5.0.2/24, t2 10.7.0.2/32")
	e.edit("t1/tap/blue, t2/tap/red", "")
	e.has("t1 10.5.0.2/24, t2 10.6.0.3/32")
	e.server.Remove("customnetworks.contivpp.io", "", "nosuch")

	e.edit("t2/tap/red, t1/veth/blue", "")
	e.eventually("t1 is a veth with the address of the tap", func() bool {
		return e.links() == "t1 10.5.0.2/24, t2 10.6.0.3/32" && e.describes("t1", "veth")
	})
	e.reaches(e.pod.Netns, gateway)
	e.check(e.pod, e.result)

	e.edit("t2/tap/red, t1/veth/blue", `{"t1": {"mtu": 1300}}`)
	e.eventually("t1 has the other MTU", func() bool { return e.describes("t1", "mtu 1300") })
	e.check(e.pod, e.result)

	e.server.Disconnect() // only the agent's state has the edits now
	e.restartAfter(func(string) error { return nil })
	if operations := e.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the new agent: %v", operations)
	}
	e.has("t1 10.5.0.2/24, t2 10.6.0.3/32")
	e.reaches(e.pod.Netns, "10.6.0.1")
	e.check(e.pod, e.result)
	e.server.Reconnect()

	must.Succeed(t, e.StopAgent())
	e.edit("t1/tap/blue, t3/tap/red", "")
	e.start()
	e.has("t1 10.5.0.2/24, t3 10.6.0.4/32")
	e.reaches(e.pod.Netns, gateway)

	e.pause(true)
	e.edit("t1/tap/blue", "")
	e.told("WeftChangeFailed", "paused")
	e.has("t1 10.5.0.2/24, t3 10.6.0.4/32")
	e.pause(false)
	e.has("t1 10.5.0.2/24")
	e.published("t1 [10.5.0.2]")
	e.check(e.pod, e.result)
	stream()
	if diff := e.snapshot().Since(first); len(diff) > 0 {
		t.Errorf("left behind after the edits: %v", diff)
	}
	e.cni("DEL", e.pod, nil)
}

// plan returns the plan of an edit.
func (e *editing) plan(interfaces string) string {
	e.Helper()
	file := filepath.Join(e.TempDir(), "pod.yaml")
	must.Succeed(e.T, os.WriteFile(file, []byte(`
apiVersion: v1
kind: Pod
metadata: {namespace: lab, name: `+e.pod.Name+`, annotations: {contivpp.io/custom-if: "`+interfaces+`"}}
`), 0o600))
	text, err := e.Weftctl(e.Context(), "plan", "pod", "--edit", "-f", file)
	must.Succeed(e.T, err)
	return text
}

// network creates a network of type L3.
func (e *editing) network(name, cidr string) {
	e.server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.CustomNetworkSpec{Type: v1.L3, CIDRs: []v1.CIDR{v1.CIDR(cidr)}},
	})
}

// pause stops new interfaces of the cluster, or permits them again.
func (e *editing) pause(on bool) {
	e.server.Put("weftconfigs.contivpp.io", &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1.WeftConfigSpec{Paused: on},
	})
}

// published waits until network-status has these interfaces of the pod, beside eth0, with their addresses.
func (e *editing) published(want string) {
	e.Helper()
	e.eventually("network-status has "+want, func() bool {
		list, _ := e.status(e.server, e.pod)
		var got []string
		for _, i := range list {
			if i.Interface != "eth0" {
				got = append(got, fmt.Sprint(i.Interface, " ", i.IPs))
			}
		}
		return strings.Join(got, " ") == want
	})
}

// describes reports whether ip-link(8) describes a link in the pod with these words.
func (e *editing) describes(link, words string) (does bool) {
	e.Helper()
	netnstest.Do(e.T, e.pod.Netns, func() {
		out, err := exec.CommandContext(e.Context(), "ip", "-d", "-o", "link", "show", link).Output()
		does = err == nil && strings.Contains(string(out), " "+words+" ")
	})
	return does
}

func TestInterfacesDoNotChangeWhileTheSwitchIsOff(t *testing.T) {
	e := newEditing(t, map[string]string{customInterfaces: "t1/tap/blue"})
	off := false
	e.server.Put("weftconfigs.contivpp.io", &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1.WeftConfigSpec{InterfaceChanges: &off},
	})
	e.eventually("the edit is told to be late", func() bool {
		e.edit("t1/tap/blue, t2/tap/red", "")
		for _, event := range eventsOf(t, e.server) {
			if event.Reason == "WeftAnnotationsEdited" {
				return true
			}
		}
		e.edit("t1/tap/blue", "")
		return false
	})
	e.edit("t1/tap/blue, t2/tap/red", "")
	select {
	case <-time.After(2 * time.Second): // ten times the pause between an edit and its application
	case <-t.Context().Done():
	}
	if links := e.links(); links != "t1 10.5.0.2/24" {
		t.Errorf("the pod has %s while changes are off", links)
	}
	e.server.Remove("weftconfigs.contivpp.io", "", "default")
	e.has("t1 10.5.0.2/24, t2 10.6.0.2/32")
	e.cni("DEL", e.pod, nil)
}

// stream pings the node through the main interface until the returned function is called, which fails the test if a
// packet was lost.
func (e *editing) stream() (end func()) {
	e.Helper()
	gateway := netip.MustParseAddr("10.8.0.1")
	p, err := ping.Open(e.pod.Netns, gateway)
	must.Succeed(e.T, err)
	ctx, cancel := context.WithCancel(e.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		loss, err := p.Stream(ctx, gateway, 5*time.Millisecond)
		if err != nil || loss.Answered != loss.Sent || loss.Sent == 0 {
			e.Errorf("pings through the main interface: %v %v", loss, err)
		}
		_ = p.Close()
	}()
	return func() { cancel(); <-ended }
}

// Memifs come and go in the directory that the container has already, within the devices that kubelet granted.
func TestEditedAnnotationsChangeTheMemifsOfARunningPod(t *testing.T) {
	e := newEditing(t, map[string]string{customInterfaces: "t1/tap/blue"}, kubelettest.Container{Name: "vnf", Limit: 2})
	file := filepath.Join(e.containers[0].Mounts[0].GetHostPath(), memif.DescriptionFile)
	lists := func(names ...string) func() bool {
		return func() bool {
			text, err := os.ReadFile(file)
			if err != nil {
				return len(names) == 0 && os.IsNotExist(err)
			}
			descriptions, err := memif.ParseDescriptions(text)
			must.Succeed(t, err)
			var listed []string
			for _, d := range descriptions {
				listed = append(listed, d.Name)
			}
			return slices.Equal(listed, names)
		}
	}
	before := e.snapshot()
	e.edit("t1/tap/blue, m1/memif/blue", "")
	e.eventually("m1 is listed", lists("m1"))
	e.check(e.pod, e.result)
	e.edit("t1/tap/blue, m1/memif/blue, m2/memif/red, m3/memif/red", "")
	e.told("WeftChangeFailed", "interface m3: the pod's containers have 2 of contivpp.io/memif")
	e.edit("t1/tap/blue, m1/memif/blue, m2/memif/red", "")
	e.eventually("both are listed", lists("m1", "m2"))
	must.Succeed(t, errors.Join(e.KillAgent(), e.StartAgent(t.Context())))
	e.edit("m2/memif/red, t1/tap/blue", "")
	e.eventually("m1 is gone", lists("m2"))
	e.edit("t1/tap/blue", "")
	e.eventually("no memif is left", lists())
	e.edit("t1/tap/blue, m9/memif/red", "")
	e.eventually("the device is used again", lists("m9"))
	e.check(e.pod, e.result)
	e.edit("t1/tap/blue", "")
	e.eventually("no memif is left", lists())
	if diff := e.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind after the edits: %v", diff)
	}
	e.cni("DEL", e.pod, nil)
}

// Edits are applied although the agent is killed again and again.
func TestEditsOutliveAgentsThatAreKilled(t *testing.T) {
	e := newEditing(t, map[string]string{customInterfaces: "t1/tap/blue"})
	for round := range 6 {
		interfaces := "t1/tap/blue, t2/veth/red"
		links := regexp.MustCompile(`^t1 10\.5\.0\.2/24, t2 10\.6\.0\.[0-9]+/32$`)
		if round%2 == 1 {
			interfaces = "t1/tap/blue"
			links = regexp.MustCompile(`^t1 10\.5\.0\.2/24$`)
		}
		e.edit(interfaces, "")
		select {
		case <-time.After(200*time.Millisecond + time.Duration(rand.IntN(60))*time.Millisecond):
		case <-t.Context().Done():
		}
		must.Succeed(t, errors.Join(e.KillAgent(), e.StartAgent(t.Context())))
		e.eventually("the edit is applied", func() bool { return links.MatchString(e.links()) })
		e.check(e.pod, e.result)
	}
	e.cni("DEL", e.pod, nil)
}

// A runtime that passes other annotations than the API server has shown is right: the difference is no edit.
func TestAnnotationsOfTheRuntimeAreNoEdit(t *testing.T) {
	l, server := clusterLab(t)
	e := &editing{lab: l, server: server, pod: l.pod("a")}
	l.put(server, e.pod, map[string]string{"other": "x"})
	l.eventually("the agent knows the network", func() bool {
		return len(l.logged("set 1 networks (from cluster)")) > 0
	})
	k8stest.Eventually(t, "the ADD with annotations of the runtime", func() bool {
		_, failed := l.triesWith("ADD", e.pod, map[string]any{"runtimeConfig": map[string]any{
			"io.kubernetes.cri.pod-annotations": map[string]string{customInterfaces: "t1/tap/blue"},
		}})
		return !failed
	})
	e.edit("t1/tap/blue, t2/veth/blue", "")
	e.told("WeftAnnotationsEdited", "contivpp.io/custom-if takes effect when the pod is created again")
	if links := e.links(); links != "t1 10.5.0.2/24" {
		t.Errorf("the pod has %s", links)
	}
	l.cni("DEL", e.pod, nil)
}

// Edits while the state cannot be saved are undone whole, and the last one is applied when there is room.
func TestEditsOnAFullDiskWaitUntilThereIsRoom(t *testing.T) {
	e := newEditing(t, map[string]string{customInterfaces: "t1/tap/blue"})
	must.Succeed(t, e.StopAgent())
	disk := fullDisk{e.State()}
	saved, err := os.ReadFile(e.stateFile())
	must.Succeed(t, err)
	if err := unix.Mount("tmpfs", disk.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs to mount a tmpfs: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk.dir, unix.MNT_DETACH) })
	must.Succeed(t, os.WriteFile(e.stateFile(), saved, 0o600))
	e.start()
	e.has("t1 10.5.0.2/24")
	disk.fill(t)
	isRefused := func() bool {
		for _, event := range eventsOf(t, e.server) {
			if event.Reason == "WeftChangeFailed" && strings.Contains(event.Message, "state") {
				return true
			}
		}
		return false
	}
	for n := 0; n < 100 && !isRefused(); n++ { // until the file's free pages are used up
		links := "t1/tap/blue"
		if n%2 == 0 {
			links += ", t2/tap/red"
		}
		e.edit(links, "")
		e.eventually("the edit is applied or refused", func() bool {
			return strings.Contains(e.links(), "t2") == (n%2 == 0) || isRefused()
		})
	}
	if !isRefused() {
		t.Fatal("no edit failed on a full disk")
	}
	before := e.links()
	e.edit("t1/tap/blue, t3/tap/red", "")
	e.awaitStatus("state file cannot be written", true)
	e.reaches(e.pod.Netns, "10.5.0.1")
	if links := e.links(); links != before {
		t.Errorf("the pod has %s, and before the edit on a full disk %s", links, before)
	}
	disk.free(t)
	e.eventually("the pod has t3 instead of t2", func() bool {
		links := e.links()
		return strings.HasPrefix(links, "t1 10.5.0.2/24, t3 10.6.0.") && !strings.Contains(links, "t2")
	})
	e.check(e.pod, e.result)
	e.cni("DEL", e.pod, nil)
}

// The dataplane dies around edits. What the annotations say last is there when it has come back, and so are the
// interfaces that no edit named.
func TestEditsOutliveDataplanesThatAreKilled(t *testing.T) {
	e := newEditing(t, map[string]string{customInterfaces: "t1/veth/blue"})
	before := e.snapshot()
	for n := range 6 {
		links := "t1/veth/blue"
		if n%2 == 0 {
			links += ", t2/veth/red"
		}
		e.edit(links, "")
		select { // the edit is applied 200 ms later, so the kill comes before, within, or after its transaction
		case <-time.After(time.Duration(rand.IntN(500)) * time.Millisecond): //nolint:gosec // any time is right
		case <-t.Context().Done():
		}
		must.Succeed(t, e.KillDataplane())
		e.eventually(links+" after the kill", func() bool { return strings.Contains(e.links(), "t2") == (n%2 == 0) })
		e.reaches(e.pod.Netns, "10.5.0.1")
		if n%2 == 0 {
			e.reaches(e.pod.Netns, "10.6.0.1")
		}
	}
	e.check(e.pod, e.result)
	if diff := e.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind after the edits: %v", diff)
	}
	e.cni("DEL", e.pod, nil)
}
