package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/pod"
)

// claims makes a node of 8 devices, of which claims get the last 4.
func claims(n *node) {
	n.config.Devices.Count = 8
	n.config.Devices.Claimable = 4
	n.config.Directories.CDI = filepath.Join(n.dir, "cdi")
}

func claimOf(name string) pod.ClaimID {
	return pod.ClaimID{Namespace: "shop", Name: name, UID: "uid-of-claim-" + name}
}

// deviceOf returns a device of a claim for the pods of the given names.
func deviceOf(claim string, n int, pods ...string) pod.ClaimedDevice {
	d := pod.ClaimedDevice{
		ClaimID: claimOf(claim), Device: deviceID(n), Request: "m",
		Parameters: pod.ClaimParameters{
			Interface: fmt.Sprintf("m%d", n),
			Options:   map[string]json.RawMessage{"ringSize": json.RawMessage("512")},
		},
	}
	for _, p := range pods {
		d.Pods = append(d.Pods, idOf(p).UID)
	}
	return d
}

func (n *node) claim(t *testing.T, claim string, devices ...pod.ClaimedDevice) []pod.Allocation {
	t.Helper()
	made, err := n.Claim(t.Context(), claimOf(claim), devices)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// addClaimed connects a sandbox of a pod with claims.
func (n *node) addClaimed(t *testing.T, name, sandbox string) (*pod.AddPod, error) {
	t.Helper()
	grants, err := n.Claimed(t.Context(), idOf(name))
	if err != nil {
		t.Fatal(err)
	}
	ev := &pod.AddPod{Request: pod.Request{
		Key:      keyOf(sandbox),
		ID:       idOf(name),
		Netns:    pod.Netns{Path: "/run/netns/" + sandbox, Inode: 1},
		Resolved: pod.Resolved{Grants: grants},
	}}
	_, err = n.loop.Do(t.Context(), ev)
	return ev, err
}

// A prepared claim has a directory and a CDI file, before and after a restart and a repeated preparation; nothing is
// left of it when it is released.
func TestClaimIsPreparedOnceAndReleasedWithoutLeftovers(t *testing.T) {
	n := bareNode(t, claims)
	made := n.claim(t, "c", deviceOf("c", 4, "a"), deviceOf("c", 5, "a"))
	n.kill(t)
	again := n.claim(t, "c", deviceOf("c", 4, "a"), deviceOf("c", 5, "a"))
	for i := range made {
		if made[i].ID != again[i].ID || made[i].Secret != again[i].Secret || made[i].Devices[0] != deviceID(4+i) {
			t.Errorf("allocation %s after %s", again[i].ID, made[i].ID)
		}
	}
	if made[0].Directory == made[1].Directory {
		t.Error("two devices have one directory")
	}
	ev, err := n.addClaimed(t, "a", "s")
	if err != nil || len(ev.Attachment.Interfaces) != 2 {
		t.Fatalf("interfaces %+v, %v", ev.Attachment, err)
	}
	if err := n.Unclaim(t.Context(), claimOf("c"), "test"); err == nil ||
		!strings.Contains(err.Error(), "still uses it") {
		t.Errorf("release of a used claim: %v", err)
	}
	n.delete(t, "s")
	for range 2 {
		if err := n.Unclaim(t.Context(), claimOf("c"), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(n.config.Directories.CDI); len(left)+len(n.leftovers(t))+len(n.stateFile(t)) > 0 {
		t.Errorf("left: CDI files %v, files %v, state %v", left, n.leftovers(t), n.stateFile(t))
	}
}

// hostileTexts are texts that lead out of a directory, end a line or a C string, or are longer than a file name.
var hostileTexts = []string{
	"../../outside", "/etc/passwd", "..", "a/../../b", "a\nb", "a\x00b", "a\"b", "%2e%2e%2f", "\u202e", "-",
	strings.Repeat("x", 5000),
}

// The names of a claim are texts of a tenant: the API server restricts them, and the agent does not rely on it. All
// files have the name of the allocation, which the agent chooses.
func TestNamesOfAClaimBecomeNoPaths(t *testing.T) {
	for field, set := range map[string]func(d *pod.ClaimedDevice, text string){
		"namespace": func(d *pod.ClaimedDevice, text string) { d.Namespace = text },
		"name":      func(d *pod.ClaimedDevice, text string) { d.Name = text },
		"UID":       func(d *pod.ClaimedDevice, text string) { d.UID = text },
		"request":   func(d *pod.ClaimedDevice, text string) { d.Request = text },
		"pod":       func(d *pod.ClaimedDevice, text string) { d.Pods = []string{text} },
		"interface": func(d *pod.ClaimedDevice, text string) { d.Parameters.Interface = text },
		"network":   func(d *pod.ClaimedDevice, text string) { d.Parameters.Network = text },
		"device":    func(d *pod.ClaimedDevice, text string) { d.Device = text },
	} {
		t.Run(field, func(t *testing.T) {
			n := bareNode(t, claims)
			for _, text := range hostileTexts {
				d := deviceOf("c", 4, "a")
				set(&d, text)
				before := n.files(t)
				made, err := n.Claim(t.Context(), d.ClaimID, []pod.ClaimedDevice{d})
				n.mustHaveOnly(t, before, made)
				if err != nil {
					continue
				}
				if field == "device" || field == "network" || field == "interface" && !pod.IsLinkName(text) {
					t.Errorf("%.20q is accepted", text)
				}
				n.kill(t) // the state file and the record have the names too
				n.mustHaveOnly(t, before, made)
				if err := n.Unclaim(t.Context(), d.ClaimID, "test"); err != nil {
					t.Error(err)
				}
				n.mustHaveOnly(t, before, nil)
			}
		})
	}
}

// files returns the paths of all files below the node's directory, but those of kubelet.
func (n *node) files(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() != fs.ModeSocket {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// mustHaveOnly fails the test if a file is missing, or if there are others than before and those of the allocations.
func (n *node) mustHaveOnly(t *testing.T, before []string, made []pod.Allocation) {
	t.Helper()
	want := slices.Clone(before)
	for _, a := range made {
		directory := filepath.Join(n.config.Directories.Root, a.ID)
		want = append(want, directory, directory+"/secret", directory+".json",
			filepath.Join(n.config.Directories.CDI, "contivpp.io-memif_"+a.ID+".json"))
	}
	// made by the first call
	dirs := n.config.Directories
	want = append(want, filepath.Dir(dirs.Root), dirs.Root, dirs.CDI, dirs.DeviceInfo)
	got := n.files(t)
	slices.Sort(got)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

// The CDI file mounts the directory of the allocation where no other memif of the pod is, and has no secret.
func TestCDIFileMountsDirectoryOfClaim(t *testing.T) {
	n := bareNode(t, claims)
	a := n.claim(t, "c", deviceOf("c", 7, "a"))[0]
	path := filepath.Join(n.config.Directories.CDI, "contivpp.io-memif_"+a.ID+".json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":"contivpp.io/memif","devices":[{"name":%q,"containerEdits":{"env":["MEMIF_SOCKET_M7=/run/memif-claims/m7/memif.sock"],`+
		`"mounts":[{"hostPath":%q,"containerPath":"/run/memif-claims/m7","options":["bind","nosuid","nodev","noexec","ro"]}]}}],"containerEdits":{}}`, a.ID, a.Directory)
	if string(raw) != want {
		t.Errorf("CDI file %s, want %s", raw, want)
	}
	if CDIDevice(&a) != "contivpp.io/memif="+a.ID || strings.Contains(string(raw), string(a.Secret)) {
		t.Errorf("device %s", CDIDevice(&a))
	}
	if m := mode(path); m != "-rw-------" {
		t.Errorf("mode %s", m)
	}
}

// Multus copies the device information of a claim's device before the ADD that names it.
func TestClaimForDelegatesHasDeviceInformation(t *testing.T) {
	n := bareNode(t, claims)
	own := deviceOf("c", 4, "a")
	named := deviceOf("c", 5, "a")
	named.Parameters = pod.ClaimParameters{Interface: "m5", Delegate: true}
	made := n.claim(t, "c", own, named)
	if path := n.layout.deviceInfoPath(own.Device); mode(path) != "" {
		t.Errorf("%s exists", path)
	}
	raw, err := os.ReadFile(filepath.Join(n.config.Directories.DeviceInfo, "contivpp.io-memif-memif-5-device.json"))
	if err != nil || !strings.Contains(string(raw), made[1].SocketPath()) {
		t.Errorf("device information %s, %v", raw, err)
	}
	if err := n.Unclaim(t.Context(), claimOf("c"), "test"); err != nil || len(n.leftovers(t)) > 0 {
		t.Errorf("%v, left %v", err, n.leftovers(t))
	}
}

// Directories of /run are lost in a reboot, and the operator may have set devices.memif.claims to 0 before. The claims
// are still prepared.
func TestClaimsAreRestoredAfterARebootWithoutDevicesForClaims(t *testing.T) {
	n := bareNode(t, claims)
	a := n.claim(t, "c", deviceOf("c", 7, "a"))[0]
	n.stop()
	dirs := n.config.Directories
	for _, lost := range []string{dirs.CDI, dirs.Root, dirs.DeviceInfo} {
		if err := os.RemoveAll(lost); err != nil {
			t.Fatal(err)
		}
	}
	n.config.Devices.Claimable = 0
	n.boot(t)
	for _, path := range []string{a.Directory, filepath.Join(dirs.CDI, "contivpp.io-memif_"+a.ID+".json")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// Another program may remove files of a prepared claim. Each event that relies on them recreates them, and so does the
// collector: a container that restarts relies on the CDI file without any event.
func TestLostFilesOfAPreparedClaimAreRecreated(t *testing.T) {
	for _, when := range []struct {
		name    string
		recover func(t *testing.T, n *node)
	}{
		{"repeated preparation", func(t *testing.T, n *node) { n.claim(t, "c", deviceOf("c", 4, "a")) }},
		{"ADD", func(t *testing.T, n *node) {
			if _, err := n.Claimed(t.Context(), idOf("a")); err != nil {
				t.Fatal(err)
			}
		}},
		{"collector", func(t *testing.T, n *node) {
			if err := n.collector.collect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(when.name, func(t *testing.T) {
			n := bareNode(t, claims)
			a := n.claim(t, "c", deviceOf("c", 4, "a"))[0]
			had := n.files(t)
			for _, lost := range []string{
				n.layout.cdiPath(n.table.find(a.ID)), n.config.Directories.CDI,
				recordPath(a.Directory), secretPath(a.Directory),
				a.Directory, n.config.Directories.Root,
			} {
				if err := os.RemoveAll(lost); err != nil {
					t.Fatal(err)
				}
				if when.recover(t, n); !slices.Equal(n.files(t), had) {
					t.Errorf("%s was lost; there are %q, want %q", lost, n.files(t), had)
				}
			}
			changes := len(n.committer.Changes())
			err := n.disk.ensure(t.Context(), n.table.inOrder())
			if err != nil || len(n.committer.Changes()) != changes {
				t.Errorf("without a loss: %v, %d changes", err, len(n.committer.Changes())-changes)
			}
		})
	}
}

// Claims and the device plugin have different devices. The plugin refuses those of claims, and the reverse, also after
// the numbers were changed while pods run.
func TestPluginAndClaimsNeverShareADevice(t *testing.T) {
	n := bareNode(t, claims)
	if got := n.Claimable(); !slices.Equal(got, []string{"memif-4", "memif-5", "memif-6", "memif-7"}) {
		t.Errorf("claimable %v", got)
	}
	n.claim(t, "c", deviceOf("c", 4, "a"))
	if _, err := n.loop.Do(t.Context(), &pod.AllocateDevice{Devices: []string{"memif-4"}}); err == nil ||
		!strings.Contains(err.Error(), "memif-0 to memif-3") {
		t.Errorf("device of claims: %v", err)
	}
	for what, device := range map[string]int{"of the plugin": 3, "that the node does not have": 8} {
		if _, err := n.Claim(t.Context(), claimOf("d"), []pod.ClaimedDevice{deviceOf("d", device, "a")}); err == nil ||
			!strings.Contains(err.Error(), "claims get memif-4 to memif-7") {
			t.Errorf("device %s: %v", what, err)
		}
	}
	if _, err := n.Claim(t.Context(), claimOf("d"), []pod.ClaimedDevice{deviceOf("d", 4, "b")}); err == nil ||
		!strings.Contains(err.Error(), "it is still claim shop/c's") {
		t.Errorf("device of another claim: %v", err)
	}
	n.config.Devices.Claimable = 0
	n.kill(t)
	if _, err := n.loop.Do(t.Context(), &pod.AllocateDevice{Devices: []string{"memif-4"}}); err == nil ||
		!strings.Contains(err.Error(), "still claim shop/c's") {
		t.Errorf("device that was a claim's before the configuration changed: %v", err)
	}
	if _, err := n.loop.Do(t.Context(), &pod.AllocateDevice{Devices: []string{"memif-5"}}); err != nil {
		t.Error(err)
	}
	n.config.Devices.Claimable = 4
	n.kill(t)
	if _, err := n.Claim(t.Context(), claimOf("d"), []pod.ClaimedDevice{deviceOf("d", 5, "b")}); err == nil ||
		!strings.Contains(err.Error(), "by the device plugin") {
		t.Errorf("device that was the plugin's before the configuration changed: %v", err)
	}
}

// A failed preparation leaves nothing, whichever step fails, and the next attempt succeeds.
func TestPreparationThatFailsLeavesNothing(t *testing.T) {
	boom := errors.New("boom")
	for step, breakIt := range map[string]func(*node, error){
		"commit": func(n *node, err error) {
			n.committer.Before(func(context.Context, eventloop.Change) error { return err })
		},
		"save": func(n *node, err error) {
			n.saver.Before(func(context.Context, []eventloop.Saved) error { return err })
		},
	} {
		t.Run(step, func(t *testing.T) {
			n := bareNode(t, claims)
			breakIt(n, boom)
			if _, err := n.Claim(t.Context(), claimOf("c"), []pod.ClaimedDevice{
				deviceOf("c", 4, "a"), deviceOf("c", 5, "a"),
			}); err == nil {
				t.Fatal("it succeeded")
			}
			breakIt(n, nil)
			if len(n.Allocations())+len(n.stateFile(t)) > 0 {
				t.Errorf("allocations %v", n.Allocations())
			}
			n.kill(t)
			if made := n.claim(t, "c", deviceOf("c", 4, "a"), deviceOf("c", 5, "a")); len(made) != 2 ||
				len(n.stateFile(t)) != 2 {
				t.Errorf("allocations %v", made)
			}
		})
	}
}

// A claim survives the loss of the state file, and an agent that was killed between the commit and the durable step, by
// its owner record.
func TestClaimIsRebuiltFromItsRecord(t *testing.T) {
	n := bareNode(t, claims)
	made := n.claim(t, "c", deviceOf("c", 4, "a"))[0]
	n.stop()
	n.saver = &eventlooptest.Saver{}
	n.boot(t)
	if again := n.claim(t, "c", deviceOf("c", 4, "a"))[0]; again.ID != made.ID {
		t.Errorf("allocation %s, was %s", again.ID, made.ID)
	}
}

// A claim of its own outlives a pod: the next pod gets its memif when no sandbox of the first one has it.
func TestNextPodOfAClaimGetsItsMemif(t *testing.T) {
	n := bareNode(t, claims)
	n.claim(t, "c", deviceOf("c", 4, "a", "b"))
	if _, err := n.addClaimed(t, "a", "s1"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.addClaimed(t, "b", "s2"); err == nil || !strings.Contains(err.Error(), "belongs to container") {
		t.Errorf("two pods at a time: %v", err)
	}
	n.delete(t, "s1")
	if _, err := n.addClaimed(t, "b", "s3"); err != nil {
		t.Error(err)
	}
	if grants, err := n.Claimed(t.Context(), idOf("other")); err != nil || len(grants) > 0 {
		t.Errorf("another pod has %v, %v", grants, err)
	}
}

// given is a model of kubelet and scheduler that are wrong: they ask for any device at any time.
type given struct {
	*node
	claims map[string]int // device by prepared claim
}

// TestNoMemifIsGivenTwice runs random requests of plugin and claims, with restarts and changes of the numbers: at any
// time a device has one allocation, a claim keeps its device until it is released, and an allocation of the plugin is
// of the plugin's devices.
func TestNoMemifIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		g := &given{node: bareNode(t, claims), claims: map[string]int{}}
		defer func() { g.stop() }()
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			device := rapid.IntRange(0, 8).Draw(r, "device")
			claim := rapid.SampledFrom([]string{"c", "d", "e"}).Draw(r, "claim")
			switch rapid.SampledFrom([]string{"allocate", "prepare", "prepare", "release", "restart", "divide"}).Draw(r,
				"step") {
			case "allocate":
				_, err := g.loop.Do(t.Context(), &pod.AllocateDevice{Devices: []string{deviceID(device)}})
				if err == nil && device >= g.config.Devices.Count-g.config.Devices.Claimable {
					r.Fatalf("the plugin gave memif-%d", device)
				}
			case "prepare":
				if _, err := g.Claim(t.Context(), claimOf(claim), []pod.ClaimedDevice{
					deviceOf(claim, device, "a"),
				}); err == nil {
					if device < g.config.Devices.Count-g.config.Devices.Claimable {
						r.Fatalf("a claim got memif-%d", device)
					}
					g.claims[claim] = device
				}
			case "release":
				if err := g.Unclaim(t.Context(), claimOf(claim), "test"); err != nil {
					r.Fatal(err)
				}
				delete(g.claims, claim)
			case "divide":
				g.config.Devices.Claimable = rapid.IntRange(0, 8).Draw(r, "claimable")
				g.kill(t)
			case "restart":
				g.kill(t)
			}
			g.check(r)
		}
	})
}

func (g *given) check(r *rapid.T) {
	held := make(map[string]string)
	for _, a := range g.Allocations() {
		for _, d := range a.Devices {
			if other := held[d]; other != "" {
				r.Fatalf("%s is of %s and %s", d, other, a.ID)
			}
			held[d] = a.ID
			if a.Claim != nil && a.Claim.Device != d {
				r.Fatalf("claim %s has %s", a.Claim, d)
			}
		}
	}
	for claim, device := range g.claims {
		own := g.table.ofClaim(claimOf(claim).UID)
		if len(own) != 1 || !slices.Equal(own[0].Devices, []string{deviceID(device)}) {
			r.Fatalf("claim %s has %v, want memif-%d", claim, own, device)
		}
	}
}

// The collector asks kubelet for the devices of the device plugin, which does not list those of claims.
func TestClaimsAreNotCollected(t *testing.T) {
	n := bareNode(t, claims)
	n.claim(t, "c", deviceOf("c", 4, "a"))
	for range 3 {
		n.clock.move(24 * time.Hour)
		if err := n.collector.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.Claims()) != 1 {
		t.Error("the claim was collected")
	}
}

// A claim that is prepared again keeps its memif for other pods, and gets another one if anything of the interface
// differs.
func TestAClaimKeepsItsMemifAsLongAsItsInterfaceIsTheSame(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(d *pod.ClaimedDevice)
		same   bool
	}{
		"nothing":        {func(*pod.ClaimedDevice) {}, true},
		"the pods":       {func(d *pod.ClaimedDevice) { d.Pods = []string{idOf("b").UID} }, true},
		"the request":    {func(d *pod.ClaimedDevice) { d.Request = "other" }, false},
		"the parameters": {func(d *pod.ClaimedDevice) { d.Parameters.Network = "blue" }, false},
		"the device":     {func(d *pod.ClaimedDevice) { d.Device = deviceID(5) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := bareNode(t, claims)
			before := n.claim(t, "c", deviceOf("c", 4, "a"))[0]
			changed := deviceOf("c", 4, "a")
			tt.change(&changed)
			after := n.claim(t, "c", changed)[0]
			if (after.ID == before.ID) != tt.same || len(n.Allocations()) != 1 {
				t.Errorf("allocation %s, then %s; %d in all", before.ID, after.ID, len(n.Allocations()))
			}
		})
	}
}
