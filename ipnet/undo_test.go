package ipnet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// Pods are added and deleted, and a later handler, the commit or the durable step fails at random. A failed event
// changes nothing; after all events a resync equals the updates (the loop verifies).
func TestFailedEventChangesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := newNode(t, four, six).run(t)
		names := rapid.SampledFrom([]string{"a", "bb", "ccc", "dddd"})
		attached := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(r, "events") {
			name := names.Draw(r, "pod")
			n.now = n.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(r, "seconds")) * time.Second)
			if attached[name] || rapid.Bool().Draw(r, "delete") {
				n.delete(t, sandbox(name))
				delete(attached, name)
				continue
			}
			where := rapid.SampledFrom([]string{"", "later", "commit", "applied", "save"}).Draw(r, "fails in")
			n.breakIn(where)
			before := n.state(t)
			_, err := n.loop.Do(context.Background(), sandbox(name))
			n.breakIn("")
			if (err != nil) != (where != "") {
				r.Fatalf("failure in %q gave error %v", where, err)
			}
			if after := n.state(t); err != nil && after != before {
				r.Fatalf("failure in %q: before\n%s\nafter\n%s", where, before, after)
			}
			attached[name] = err == nil
		}
		if n.loopAddresses(r) != len(attached)-count(attached, false) {
			r.Fatalf("%d addresses of a family in use, attached: %v", n.loopAddresses(r), attached)
		}
	})
}

// breakIn makes events fail in one place; "" makes them succeed again.
func (n *node) breakIn(where string) {
	refuse := func(here string) error {
		if where == here {
			return fmt.Errorf("%s says no", here)
		}
		return nil
	}
	n.fail = where == "later"
	n.committer.Before(func(context.Context, eventloop.Change) error { return refuse("commit") })
	applied := where == "applied"
	n.committer.After(func(context.Context, eventloop.Change) error {
		if applied {
			applied = false // the undo succeeds
			return errors.New("applied, then lost")
		}
		return nil
	})
	n.saver.Before(func(_ context.Context, saved []eventloop.Saved) error {
		if len(saved) > 1 { // more than a record
			return refuse("save")
		}
		return nil
	})
}

func (n *node) loopAddresses(r *rapid.T) int {
	stats, _ := n.Networks.Addresses()
	if stats[0].Leased+stats[1].Leased != 0 || stats[0].Used != stats[1].Used {
		r.Fatalf("stats %+v", stats)
	}
	return int(stats[0].Used)
}

func count(attached map[string]bool, what bool) int {
	sum := 0
	for _, w := range attached {
		if w == what {
			sum++
		}
	}
	return sum
}

func TestDeleteOfAnUnknownAttachmentDoesNothing(t *testing.T) {
	n := newNode(t, four).run(t)
	n.add(t, sandbox("a"))
	before := n.state(t)
	n.delete(t, sandbox("b"))
	if after := n.state(t); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestDeleteLeavesOnlyACoolingAddress(t *testing.T) {
	n := newNode(t, four, six).run(t)
	before := list(t, n.committer.Values())
	ev := sandbox("a")
	n.add(t, ev)
	n.delete(t, ev)
	if after := list(t, n.committer.Values()); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	kept := n.kept()
	leases := kept.Leases
	if len(kept.Attachments) != 0 || len(leases) != 2 || leases[0].State != "cooling" ||
		leases[0].FreeAt.Sub(n.now) != coolDown {
		t.Errorf("kept: %+v", kept)
	}
}

func TestAddressIsFreedOnlyAfterTheCommit(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := sandbox("a")
	n.add(t, ev)
	n.committer.Before(func(context.Context, eventloop.Change) error {
		n.now = n.now.Add(time.Minute) // a slow dataplane
		if stats, _ := n.Networks.Addresses(); stats[0].Used != 1 {
			t.Errorf("during the commit: %+v", stats[0])
		}
		return nil
	})
	n.delete(t, ev)
	stats, leases := n.Networks.Addresses()
	if stats[0].Cooling != 1 || leases[1].FreeAt.Sub(n.now) != coolDown {
		t.Errorf("after the commit: %+v, %v", stats[0], leases)
	}
}

func TestPodWithoutAnAttachmentOfItsManagerIsRefused(t *testing.T) {
	n := newNode(t, four)
	if err := n.Pods.ConnectPod(context.Background(), &pod.AddPod{}, nil); err == nil {
		t.Error("connected")
	}
}
