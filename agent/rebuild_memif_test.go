package agent

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// memifs are on every kind of network, ordered by name.
var memifs = map[string]any{"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{
	"contivpp.io/custom-if":         "b1/memif/blue,s1/memif/stub,v1/memif/red,z1/memif",
	"contivpp.io/custom-if-options": `{"z1":{"ringSize":512,"gid":7,"mac":"02:11:22:33:44:66"},"s1":{"gid":7},"v1":{"gid":7,"mode":"ip"},"b1":{"gid":7}}`,
}}}

func TestLostStateFileCostsNoPodItsMemifs(t *testing.T) {
	dir := programs.Build(t)
	for name, lose := range map[string]func(path string) error{
		"all of it":       os.Remove,
		"the attachments": garble(statefile.BucketAttachments),
		"the devices":     garble(statefile.BucketDevices),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLabWith(t, dir, node.Options{Memifs: 8, Networks: customNetworks})
			before := l.snapshot()
			a := l.pod("a")
			a.Namespace = "lab"
			_, err := l.Admit(t.Context(), a, kubelettest.Container{Name: "init", Init: true}, kubelettest.Container{
				Name:  "vnf",
				Limit: 5,
			})
			if err != nil {
				t.Fatal(err)
			}
			result := l.cni("ADD", a, memifs)
			connected := l.snapshot()
			l.restartAfter(lose)
			if operations := l.resyncs(); len(operations) > 0 {
				t.Errorf("operations of the resync: %v", operations)
			}
			if diff := l.snapshot().Since(connected); len(diff) > 0 {
				t.Errorf("differences to before the loss: %v", diff)
			}
			l.check(a, result)
			if again := l.cni("ADD", a, memifs); !bytes.Equal(again, result) {
				t.Errorf("repeated ADD: %s\nfirst: %s", again, result)
			}
			l.cni("DEL", a, nil)
			l.Forget(a)
			deadline := time.After(time.Minute)
			for tick := time.NewTicker(100 * time.Millisecond); ; {
				diff := l.snapshot().Since(before)
				if len(diff) == 0 {
					return
				}
				select {
				case <-deadline:
					t.Fatalf("left behind: %v", diff)
				case <-tick.C:
				}
			}
		})
	}
}
