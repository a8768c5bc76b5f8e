package owners

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func attachment(name string, created time.Time) pod.Attachment {
	return pod.Attachment{
		Key:        pod.Key{Network: "weft", ContainerID: "sandbox-of-" + name, IfName: "eth0"},
		Pod:        pod.ID{Namespace: "shop", Name: name},
		Created:    created,
		Interfaces: []pod.Interface{{Name: "eth0"}, {Name: "m1", Memif: &pod.Memif{Allocation: "of-" + name}}},
	}
}

// wiring gives all pods the route to one address, and each an interface.
func wiring(all []pod.Attachment) map[string]pod.Owners {
	owners := make(map[string]pod.Owners)
	for _, a := range all {
		o := pod.Owner{Pod: a.Pod, ContainerID: a.Key.ContainerID, Interface: "eth0"}
		for _, key := range []string{"route", "interface-" + a.Pod.Name} {
			owners[key] = append(owners[key], o)
		}
	}
	return owners
}

func TestOwnersOfThePastAreThoseOfThatTime(t *testing.T) {
	begin := time.Now().Add(-time.Hour)
	var attached []pod.Attachment
	x := New(Config{
		Attachments: func() []pod.Attachment { return attached }, Wiring: wiring,
		Files: func(allocation string) []string { return []string{"file-" + allocation} },
	})
	old := attachment("old", begin)
	attached = []pod.Attachment{old}
	if got := x.Now().Of("route").String(); got != "shop/old:eth0" {
		t.Fatalf("the route belongs to %q", got)
	}
	attached = nil
	x.Observe(podmanager.Outcome{Happening: podmanager.Removed, Key: old.Key, Pod: old.Pod, Attachment: &old})
	between := time.Now()
	attached = []pod.Attachment{attachment("new", between.Add(time.Millisecond))}
	s := x.Now()
	for at, want := range map[time.Time]string{
		begin.Add(-time.Second):     "",
		begin.Add(time.Minute):      "shop/old:eth0",
		between.Add(time.Minute):    "shop/new:eth0",
		between.Add(24 * time.Hour): "shop/new:eth0",
	} {
		if got := s.At("route", at).String(); got != want {
			t.Errorf("at %s the route belonged to %q, not to %q", at, got, want)
		}
	}
	for key, want := range map[string]string{
		"route": "shop/new:eth0", "interface-old": "shop/old:eth0", "file-of-new": "shop/new:m1",
		"file-of-old": "shop/old:m1", "vrf": "",
	} {
		if got := s.Of(key).String(); got != want {
			t.Errorf("%s belongs to %q, not to %q", key, got, want)
		}
	}
}

// A route to an address is left over by the last pod that had it.
func TestAnObjectThatIsLeftOverBelongsToItsLastPod(t *testing.T) {
	x := New(Config{Attachments: func() []pod.Attachment { return nil }, Wiring: wiring})
	for _, name := range []string{"first", "last"} {
		a := attachment(name, time.Now())
		x.Observe(podmanager.Outcome{Happening: podmanager.Removed, Attachment: &a})
	}
	if got := x.Now().Of("route").String(); got != "shop/last:eth0" {
		t.Errorf("the route belongs to %q", got)
	}
}

func TestMemoryOfDeletedPodsIsBounded(t *testing.T) {
	x := New(Config{Attachments: func() []pod.Attachment { return nil }, Wiring: wiring})
	for i := range mostDeparted + 1 {
		a := attachment(fmt.Sprint(i), time.Now())
		x.Observe(podmanager.Outcome{Happening: podmanager.Removed, Attachment: &a})
	}
	s := x.Now()
	if len(s.Of("interface-0")) > 0 || len(s.Of("interface-1")) == 0 || len(s.departed) != mostDeparted {
		t.Errorf("%d deleted pods are remembered", len(s.departed))
	}
}

func TestAFailedADDThatDecidedNothingHasNoObjects(t *testing.T) {
	x := New(Config{Attachments: func() []pod.Attachment { return nil }, Wiring: wiring})
	x.Observe(podmanager.Outcome{Happening: podmanager.Failed})
	if s := x.Now(); len(s.departed) > 0 || len((*Index)(nil).Now().Of("route")) > 0 {
		t.Error("there are objects")
	}
}
