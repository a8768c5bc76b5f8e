package memif_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
)

// crowd is the number of pods, each with two containers that have a memif each.
var crowd = dataplane.Crowd(50, 1)

const together = 4 // number of concurrent ADDs or DELs

// Pods take all devices, two each; agent and kubelet are restarted after half of the ADDs; after all DELs the node is
// as before.
func TestManyPodsWithAllDevicesLeaveNothing(t *testing.T) {
	l := newLab(t, node.Options{Memifs: 2 * crowd})
	l.try(l.Kubelet.Await(t.Context(), node.Memif, 2*crowd))
	// so that kubelet's list is not empty at the end: an empty list means that kubelet has just started
	other, err := l.NewPod("other")
	l.try(err)
	_, err = l.Admit(t.Context(), other)
	l.try(err)
	places := leftovers.Places{
		Namespaces: map[string]string{"node": ""}, Directories: append(l.Watched(), l.DeviceInfo()),
		Processes: map[string]int{"weft-vswitch": l.DataplanePID()}, Agent: l.Socket(), Dataplane: l.DataplaneSocket(),
	}
	before, err := leftovers.Steady(t.Context(), places, timeout)
	l.try(err)

	guests := l.guests(crowd)
	l.each(guests[:crowd/2], (*guest).come)
	clients := l.connect(guests[:crowd/2])
	l.try(errors.Join(l.KillAgent(), l.Kubelet.Stop(), l.StartAgent(t.Context()), l.Kubelet.Start()))
	l.try(l.Kubelet.Await(t.Context(), node.Memif, 2*crowd))
	l.each(guests[crowd/2:], (*guest).come)
	clients = append(clients, l.connect(guests[crowd/2:])...)
	l.all(guests)
	for _, c := range clients {
		if _, connected := c.Info(); !connected {
			t.Error("a client was disconnected")
		}
		l.try(c.Close())
	}

	l.each(guests, (*guest).leave)
	l.eventually(func() error {
		if list := l.allocations(); len(list) > 0 {
			return fmt.Errorf("%d allocations exist", len(list))
		}
		return nil
	})
	after, err := leftovers.Settle(t.Context(), places, before, timeout)
	l.try(err)
	if lines := after.Since(before); len(lines) > 0 {
		t.Errorf("differences:\n  %s", strings.Join(lines, "\n  "))
	}
	l.try(l.StopAgent())
	l.try(emptyState(filepath.Join(l.State(), "state.db"), guests))
}

// guest is one of the pods.
type guest struct {
	*lab
	pod        *node.Pod
	containers []kubelettest.Container
}

func (l *lab) guests(n int) (all []*guest) {
	l.Helper()
	for i := range n {
		p, err := l.NewPod(fmt.Sprintf("p%d", i))
		l.try(err)
		p.Annotations = map[string]string{"contivpp.io/custom-if": "m1/memif,m2/memif"}
		all = append(all, &guest{lab: l, pod: p})
	}
	return all
}

func (m *guest) come() (err error) {
	m.containers, err = m.Kubelet.Admit(m.Context(), node.Memif, kubelettest.Pod{
		Namespace: "demo",
		Name:      m.pod.Name,
		Containers: []kubelettest.Container{
			{Name: "left", Limit: 1}, {Name: "right", Limit: 1},
		},
	})
	if err != nil {
		return err
	}
	_, err = m.runtime.Add(m.Context(), m.pod)
	return err
}

func (m *guest) leave() error {
	err := errors.Join(m.runtime.Del(m.Context(), m.pod), m.pod.Remove())
	m.Forget(m.pod)
	return err
}

// each calls f for all guests, some of them concurrently.
func (l *lab) each(guests []*guest, do func(*guest) error) {
	l.Helper()
	var group errgroup.Group
	group.SetLimit(together)
	for _, m := range guests {
		group.Go(func() error { return do(m) })
	}
	l.try(group.Wait())
}

// connect connects to the memif of each container.
func (l *lab) connect(guests []*guest) (clients []*memif.Client) {
	l.Helper()
	for _, m := range guests {
		for _, c := range m.containers {
			client, err := memif.Dial(l.Context(), memif.ClientConfig{
				Socket:   inDirectory(c, "memif.sock"),
				ID:       1,
				Secret:   memif.Secret(c.Envs[memif.SecretVariable]),
				RingSize: 64,
				Spin:     -1,
			}, memif.ClientEvents{})
			l.try(err)
			l.Cleanup(func() { _ = client.Close() })
			clients = append(clients, client)
		}
	}
	return clients
}

// all expects that each container has an allocation of its own, which the agent lists.
func (l *lab) all(guests []*guest) {
	l.Helper()
	var want, have []string
	for _, m := range guests {
		for _, c := range m.containers {
			want = append(want, fmt.Sprint(m.pod.Name, c.Name, c.Devices, directory(c)))
		}
	}
	for _, a := range l.allocations() {
		have = append(have, fmt.Sprint(a.Pod.Name, a.Container, a.Devices, a.Directory))
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) || len(have) != 2*len(guests) {
		l.Errorf("the agent has\n%q\nand kubelet\n%q", have, want)
	}
}

// emptyState expects a state file without guests, except for leases in their cool-down.
func emptyState(path string, guests []*guest) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	var names []string
	for _, g := range guests {
		for _, c := range g.containers {
			names = append(names, filepath.Base(directory(c)))
		}
	}
	var errs []error
	err = db.View(func(tx *bbolt.Tx) error {
		for _, bucket := range []string{"devices", "attachments", "leases", "applied"} {
			_ = tx.Bucket([]byte(bucket)).ForEach(func(key, value []byte) error {
				ofGuest := slices.ContainsFunc(names, func(name string) bool {
					return strings.Contains(string(key), name)
				})
				if ofGuest || bucket != "applied" && !strings.Contains(string(value), `"state":"cooling"`) {
					errs = append(errs, fmt.Errorf("bucket %[2]s contains %[1]s", key, bucket))
				}
				return nil
			})
		}
		return nil
	})
	return errors.Join(append(errs, err, db.Close())...)
}
