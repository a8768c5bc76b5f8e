package outage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// killsVariable names the environment variable with the number of kills.
const killsVariable = "WEFT_KILLS"

const (
	fewKills = 4
	between  = 3 * time.Second // maximum time from a new dataplane to the next kill
)

const staying = 2 // permanent pods, which ping each other

// mostPods is the maximum number of pods, with three veths each.
var mostPods = dataplane.Crowd(10, 3)

// chaos is a stage on which pods are added and deleted while the dataplane is killed.
type chaos struct {
	*stage
	pods   []*node.Pod
	made   int
	adds   int // successful ADDs
	dels   int
	tries  int // ADDs that returned try again later
	wanted map[string]bool
}

// The dataplane is killed at random moments while random pods are added and deleted. At the end the model equals the
// machine, no pod has lost its attachment, and nothing is left over after all pods are deleted.
func TestPodsSurviveRandomKillsOfTheDataplane(t *testing.T) {
	kills := fewKills
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		must.Succeed(t, err)
	}
	c := &chaos{stage: newStage(t), wanted: map[string]bool{}}
	c.start()
	before, err := leftovers.Steady(t.Context(), c.places(), timeout)
	must.Succeed(t, err)
	first, _ := c.add("first")
	second, links := c.add("second")
	c.wanted[first.ContainerID] = true
	c.wanted[second.ContainerID] = true
	c.pods = []*node.Pod{first, second}
	gaps := c.watch(first, links[0].Bare()[0])

	dead := make(chan error, 1)
	go func() { dead <- c.killAtRandom(t.Context(), kills) }()
	for killing := true; killing; {
		c.step()
		select {
		case err := <-dead:
			must.Succeed(t, err)
			killing = false
		default:
		}
	}
	c.settle()
	longest, lost := gaps()
	t.Logf(
		"%d kills during %d ADD, %d DEL and %d ADD with try again later; longest outage between two pods %s of %s in all",
		kills, c.adds, c.dels, c.tries, longest.Round(time.Millisecond), lost.Round(time.Millisecond))
	c.compare()
	for _, p := range c.pods {
		must.Succeed(t, c.runtime.Del(t.Context(), p))
		must.Succeed(t, p.Remove())
	}
	after, err := leftovers.Settle(t.Context(), c.places(), before, timeout)
	must.Succeed(t, err)
	if lines := after.Since(before); len(lines) > 0 {
		t.Errorf("left over:\n  %s", strings.Join(lines, "\n  "))
	}
}

func (s *stage) places() leftovers.Places {
	return leftovers.Places{
		Namespaces: map[string]string{"node": ""}, Agent: s.Socket(), Dataplane: s.DataplaneSocket(),
		Processes: map[string]int{"weft-agent": s.AgentPID()},
	}
}

// killAtRandom kills each new dataplane after a random time.
func (c *chaos) killAtRandom(ctx context.Context, kills int) error {
	last := 0
	for range kills {
		for last == c.DataplanePID() || c.DataplanePID() == 0 {
			if err := wait(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		last = c.DataplanePID()
		if err := wait(ctx, rand.N(between)); err != nil {
			return err
		}
		if err := syscall.Kill(last, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill the dataplane: %w", err)
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// step adds a pod or deletes one.
func (c *chaos) step() {
	c.Helper()
	if len(c.pods) > staying && (len(c.pods) >= mostPods || rand.IntN(2) == 0) {
		at := staying + rand.IntN(len(c.pods)-staying)
		c.delete(c.pods[at])
		c.pods = slices.Delete(c.pods, at, at+1)
		return
	}
	c.made++
	p := c.sandbox(fmt.Sprintf("pod%d", c.made))
	_, err := c.runtime.Add(c.Context(), p)
	if err == nil {
		c.adds++
		c.wanted[p.ContainerID], c.pods = true, append(c.pods, p)
		return
	}
	if output := new(types.Error); !errors.As(err, &output) || output.Code != types.ErrTryAgainLater {
		c.Errorf("the error of ADD is not try again later: %v", err)
	}
	c.tries++
	c.delete(p) // as runtimes do
	must.Succeed(c.T, wait(c.Context(), 100*time.Millisecond))
}

func (c *chaos) delete(p *node.Pod) {
	c.Helper()
	must.Succeed(c.T, c.runtime.Del(c.Context(), p))
	must.Succeed(c.T, p.Remove())
	delete(c.wanted, p.ContainerID)
	c.dels++
}

// watch pings from a pod until the returned function is called, which returns the longest time without a reply, and the
// sum of all times that are longer than one lost ping.
func (c *chaos) watch(from *node.Pod, to netip.Addr) (stop func() (longest, lost time.Duration)) {
	p, err := ping.Open(from.Netns, to)
	must.Succeed(c.T, err)
	ctx, cancel := context.WithCancel(c.Context())
	var done sync.WaitGroup
	var longest, lost time.Duration
	done.Go(func() {
		for seq, last := 0, time.Now(); ctx.Err() == nil; seq++ {
			once, end := context.WithTimeout(ctx, 50*time.Millisecond)
			_, err := p.Once(once, to, seq%(1<<16))
			end()
			if err != nil {
				continue
			}
			gap := time.Since(last)
			if last = time.Now(); gap > 100*time.Millisecond {
				longest = max(longest, gap)
				lost = lost + gap
			}
			_ = wait(ctx, 10*time.Millisecond)
		}
	})
	return func() (time.Duration, time.Duration) {
		cancel()
		done.Wait()
		if err := p.Close(); err != nil {
			c.Error(err)
		}
		return longest, lost
	}
}

// settle waits until the agent has recovered.
func (c *chaos) settle() {
	c.Helper()
	eventually(c.T, "the agent is ready and its conditions hold", func() bool {
		return c.AwaitReady(c.Context()) == nil && len(c.conditions()) == 0
	})
}

// compare checks the attachments against the added pods, and the model against the machine.
func (c *chaos) compare() {
	c.Helper()
	var reply struct {
		Attachments []struct {
			Attachment struct{ ContainerID string }
		}
	}
	must.Succeed(c.T, c.ctl(&reply, "attachments"))
	if len(reply.Attachments) != len(c.wanted) {
		c.Errorf("%d attachments, want %d", len(reply.Attachments), len(c.wanted))
	}
	for _, a := range reply.Attachments {
		if !c.wanted[a.Attachment.ContainerID] {
			c.Errorf("container %s is attached, but was not added or was deleted", a.Attachment.ContainerID)
		}
	}
	for _, p := range c.pods {
		if err := c.runtime.Check(c.Context(), p); err != nil {
			c.Error(err)
		}
	}
	if names := append(c.quarantined("suspect"), c.quarantined("quarantined")...); len(names) > 0 {
		c.Errorf("under suspicion: %v", names)
	}
	var resync struct{ Event uint64 }
	must.Succeed(c.T, c.ctl(&resync, "resync", "downstream"))
	var log struct {
		Transactions []struct {
			Event uint64
			Ops   []struct{ Verb, Ref, Why string } `json:"operations"`
		}
	}
	must.Succeed(c.T, c.ctl(&log, "transactions"))
	for _, txn := range log.Transactions {
		for _, op := range txn.Ops {
			if txn.Event == resync.Event {
				c.Errorf("model and machine differ: %s %s (%s)", op.Verb, op.Ref, op.Why)
			}
		}
	}
}
