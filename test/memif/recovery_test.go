package memif_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// The program was killed.
func TestRestartedProgramConnectsAgain(t *testing.T) {
	l := newLab(t, node.Options{})
	a := l.neighbour("a")
	d, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	for range 3 {
		responder := l.start(d, containers[0], "icmpresponder")
		l.awaitOutput(responder, "connected to")
		l.reach(a, m1.Bare()[0])
		responder.end()
	}
}

// The agent has started another dataplane and recreated the memif.
func TestProgramReconnectsAfterTheDataplaneWasKilled(t *testing.T) {
	l := newLab(t, node.Options{})
	a := l.neighbour("a")
	d, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	responder := l.start(d, containers[0], "icmpresponder")
	l.awaitOutput(responder, "connected to")
	before := l.DataplanePID()
	l.try(unix.Kill(before, unix.SIGKILL))
	l.awaitOutput(responder, "disconnected")
	l.awaitOutputTimes(responder, 2, ": connected to")
	l.eventually(func() error {
		if pid := l.DataplanePID(); pid == 0 || pid == before {
			return errors.New("the dataplane is still the same")
		}
		return nil
	})
	l.try(l.AwaitReady(t.Context()))
	for _, address := range m1.Bare() {
		l.reach(a, address)
	}
	l.try(l.runtime.Check(t.Context(), d))
}

func TestMemifLosesNoPacketWhileTheAgentRestarts(t *testing.T) {
	l := newLab(t, node.Options{})
	a := l.neighbour("a")
	d, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	m1 := l.add(d)[1]
	responder := l.start(d, containers[0], "icmpresponder")
	l.awaitOutput(responder, "connected to")
	stop := l.stream(a, m1.Bare()[0])
	l.try(l.KillAgent())
	l.try(l.StartAgent(t.Context()))
	l.try(l.Kubelet.Await(t.Context(), node.Memif, memifs))
	if loss := stop(); loss.Sent < enough || loss.Answered != loss.Sent {
		t.Errorf("during the restart of the agent: %s", loss)
	}
	l.try(l.runtime.Check(t.Context(), d))
}

// enough is the minimum number of echo requests of a stream.
const enough = 50

// stream sends echo requests from a pod to an address until it is stopped.
func (l *lab) stream(from *node.Pod, to netip.Addr) (stop func() ping.Loss) {
	l.Helper()
	l.reach(from, to)
	p, err := ping.Open(from.Netns, to)
	l.try(err)
	ctx, cancel := context.WithCancel(l.Context())
	type ending struct {
		ping.Loss
		error
	}
	ended := make(chan ending, 1)
	go func() {
		loss, err := p.Stream(ctx, to, 2*time.Millisecond)
		ended <- ending{loss, err}
	}()
	return func() ping.Loss {
		l.Helper()
		l.eventually(func() error {
			if n := p.Sent(); n < enough {
				return fmt.Errorf("only %d echo requests were sent", n)
			}
			return nil
		})
		cancel()
		e := <-ended
		l.try(errors.Join(e.error, p.Close()))
		return e.Loss
	}
}
