package devicemanager

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// TestRebuildUsesOnlyTrustedRecords after the loss of the state file.
func TestRebuildUsesOnlyTrustedRecords(t *testing.T) {
	replace := func(path, content string, mode os.FileMode) error {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
	link := func(path string) error {
		if err := os.Rename(path, path+".aside"); err != nil {
			return err
		}
		return os.Symlink(path+".aside", path)
	}
	for _, tt := range []struct {
		name    string
		damage  func(a pod.Allocation) error
		trusted bool
	}{
		{"unchanged", func(pod.Allocation) error { return nil }, true},
		{"without the record", func(a pod.Allocation) error { return os.Remove(recordPath(a.Directory)) }, false},
		{"with half a record", func(a pod.Allocation) error { return os.Truncate(recordPath(a.Directory), 20) }, false},
		{
			"with a record that other users may read",
			func(a pod.Allocation) error { return os.Chmod(recordPath(a.Directory), 0o644) }, false,
		},
		{"with a link for a record", func(a pod.Allocation) error { return link(recordPath(a.Directory)) }, false},
		{"with the record of another allocation", func(a pod.Allocation) error {
			return replace(recordPath(a.Directory),
				`{"allocation":"ABCDEFGHIJKLMNOPQRST","socket":1,"devices":["memif-0"]}`, 0o600)
		}, false},
		{"without the directory", func(a pod.Allocation) error { return os.RemoveAll(a.Directory) }, false},
		{"without the secret", func(a pod.Allocation) error { return os.Remove(secretPath(a.Directory)) }, false},
		{
			"with half a secret",
			func(a pod.Allocation) error { return replace(secretPath(a.Directory), "short", 0o400) }, false,
		},
		{
			"with a secret that other users may write",
			func(a pod.Allocation) error { return os.Chmod(secretPath(a.Directory), 0o666) }, false,
		},
		{"with a link for a secret", func(a pod.Allocation) error { return link(secretPath(a.Directory)) }, false},
		{"with a directory for a secret", func(a pod.Allocation) error {
			_ = os.Remove(secretPath(a.Directory))
			return os.Mkdir(secretPath(a.Directory), 0o755)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := bareNode(t, func(n *node) { n.config.Collect.After = time.Minute })
			ev := &pod.AllocateDevice{Devices: []string{"memif-0"}}
			if _, err := n.loop.Do(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			n.stop()
			n.loseState()
			if err := tt.damage(*ev.Allocation); err != nil {
				t.Fatal(err)
			}
			all := n.nextManager(t).Allocations()
			if len(all) != 1 || (len(all[0].Devices) == 1) != tt.trusted ||
				(all[0].Secret == ev.Allocation.Secret) != tt.trusted {
				t.Fatalf("allocations: %+v", all)
			}
		})
	}
}

// nextManager returns the manager of the next agent before it runs.
func (n *node) nextManager(t *testing.T) *Manager {
	t.Helper()
	config := n.config
	config.Loop = n.loop
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Restore(n.stateFile(t), nil)
	if err := m.Rebuild(); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRebuildTrustsSecretOfThePodsUserOnly: a pod may own its allocation's directory.
func TestRebuildTrustsSecretOfThePodsUserOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: files are given to other users")
	}
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	ev := n.event(t)
	ev.Grants[0].Allocation.UID = 1001
	ev.Grants[0].GID = 1000
	if _, err := n.loop.Do(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	a := n.Allocations()[0]
	n.stop()
	n.loseState()
	for uid, trusted := range map[int]bool{0: true, 1001: true, 1002: false} {
		if err := os.Chown(secretPath(a.Directory), uid, 1000); err != nil {
			t.Fatal(err)
		}
		if got := n.nextManager(t).Allocations()[0]; (got.Secret == a.Secret) != trusted ||
			trusted && (got.UID != 1001 || got.Pod != idOf("a")) {
			t.Errorf("secret of user %d: %+v", uid, got)
		}
	}
}

// TestUnknownDirectoriesAreCollected, and foreign files stay.
func TestUnknownDirectoriesAreCollected(t *testing.T) {
	n := bareNode(t, func(n *node) { n.config.Collect.After = time.Minute })
	stray := n.config.Directories.Root + "/ABCDEFGHIJKLMNOPQRST"
	foreign := n.config.Directories.Root + "/README"
	if err := os.MkdirAll(stray+"/x", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.kill(t)
	if _, err := n.kubelet.Admit(t.Context(), pod.Resource, kubelettest.Pod{
		Namespace: "kube-system",
		Name:      "proxy",
	}); err != nil {
		t.Fatal(err)
	}
	n.collect(t, n.collector.collect, 3)
	if left := n.leftovers(t); strings.Join(left, " ") != foreign {
		t.Errorf("left: %v", left)
	}
}

func TestRestoreResolvesDuplicateDevicesAndSockets(t *testing.T) {
	n := bareNode(t)
	save := func(id string, age time.Duration, devices ...string) Saved {
		return Saved{
			ID: strings.Repeat(id, idLength), Directory: n.config.Directories.Root + "/" + strings.Repeat(id, idLength),
			Secret:   strings.Repeat(id, secretLength),
			metadata: metadata{Socket: 1, Devices: devices, Created: n.clock.Now().Add(-age)},
		}
	}
	broken := save("x", 0, "memif-0")
	broken.Secret = ""
	old := save("a", time.Hour, "memif-0", "memif-1")
	young := save("b", time.Minute, "memif-0")
	for _, order := range [][]Saved{{old, young, broken}, {broken, young, old}} {
		config := n.config
		config.Loop = n.loop
		m, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		m.Restore(order, nil)
		all := m.Allocations()
		if len(all) != 2 || strings.Join(all[0].Devices, " ") != "memif-1" ||
			strings.Join(all[1].Devices, " ") != "memif-0" || all[0].Socket == all[1].Socket {
			t.Errorf("allocations: %+v", all)
		}
	}
}

func whole() *allocation {
	id := strings.Repeat("x", idLength)
	return &allocation{successor: strings.Repeat("y", idLength), direct: true, Allocation: pod.Allocation{
		ID: id, Socket: 7, Devices: []string{"memif-12"}, Directory: "/run/weft/memif/" + id,
		Created: time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC), Secret: secret.Text(strings.Repeat("s", secretLength)),
		Pod: pod.ID{Namespace: "shop", Name: "a", UID: "u"}, Container: "c", UID: 1, GID: 2, Granted: true,
		Attachment: pod.Key{Network: "weft", ContainerID: "s1", IfName: "eth0"},
		Netns:      pod.Netns{Path: "/run/netns/s1", Inode: 3, Device: 4},
		Claim: &pod.ClaimedDevice{
			ClaimID: pod.ClaimID{Namespace: "shop", Name: "c", UID: "v"},
			Device:  "memif-12",
			Request: "m",
			Pods:    []string{"u"},
			Parameters: pod.ClaimParameters{
				Interface: "fast",
				Network:   "blue",
				Options:   map[string]json.RawMessage{"ringSize": json.RawMessage("512")},
			},
		},
	}}
}

// TestStateFileAndRecordHoldTheWholeAllocation; only the record has no secret.
func TestStateFileAndRecordHoldTheWholeAllocation(t *testing.T) {
	for field, value := range reflect.ValueOf(whole().Allocation).Fields() {
		if value.IsZero() {
			t.Errorf("this test does not cover field %s", field.Name)
		}
	}
	raw, err := json.Marshal(whole().saved())
	if err != nil {
		t.Fatal(err)
	}
	var s Saved
	if err := json.Unmarshal(raw, &s); err != nil || !reflect.DeepEqual(s.allocation(), whole()) {
		t.Errorf("saved %s, %v", raw, err)
	}
	raw, err = json.Marshal(recordOf(whole()))
	if err != nil {
		t.Fatal(err)
	}
	want := whole()
	want.Secret = ""
	if got, err := parseRecord(raw, whole().Directory); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("record %s, %v", raw, err)
	}
}

func TestRestoreIgnoresInvalidAllocation(t *testing.T) {
	if err := whole().validate(); err != nil {
		t.Fatal(err)
	}
	for name, bend := range map[string]func(*allocation){
		"a name with a slash":          func(a *allocation) { a.ID = "x/" + a.ID[2:] },
		"no secret":                    func(a *allocation) { a.Secret = "" },
		"another's directory":          func(a *allocation) { a.Directory = "/run/weft/memif/other" },
		"a directory with detours":     func(a *allocation) { a.Directory = "/run/weft/../" + a.ID },
		"a relative directory":         func(a *allocation) { a.Directory = a.ID },
		"a device with a slash":        func(a *allocation) { a.Devices = []string{"../memif-1"} },
		"a device in another notation": func(a *allocation) { a.Devices = []string{"memif-01"} },
		"a device that no node has":    func(a *allocation) { a.Devices = []string{"memif-1024"} },
		"a negative user":              func(a *allocation) { a.UID = -1 },
		"a group out of range":         func(a *allocation) { a.GID = 1<<32 - 1 },
	} {
		a := whole()
		bend(a)
		if err := a.validate(); err == nil || strings.Contains(err.Error(), string(whole().Secret)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzOwnerRecord: any accepted record yields an allocation of its own directory and survives a round trip.
func FuzzOwnerRecord(f *testing.F) {
	raw, err := json.Marshal(recordOf(whole()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"allocation":"xxxxxxxxxxxxxxxxxxxx","devices":["../x"],"socket":4294967295,"gid":-5}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseRecord(raw, whole().Directory)
		if err != nil {
			return
		}
		a.Secret = whole().Secret
		if a.validate() != nil {
			return
		}
		files, err := (&layout{
			directories: Directories{DeviceInfo: "/devinfo", CDI: "/cdi"}, mounts: Mounts{Claims: "/memif"},
		}).files(a)
		if err != nil {
			return // a time that JSON cannot represent
		}
		for _, file := range files {
			if !strings.HasPrefix(file.path, whole().Directory) && strings.Count(file.path, "/") != 2 {
				t.Errorf("file %s", file.path)
			}
		}
		again, err := json.Marshal(recordOf(a))
		if err != nil {
			t.Fatal(err)
		}
		b, err := parseRecord(again, whole().Directory)
		if err != nil || b.ID != a.ID || b.Socket != a.Socket ||
			strings.Join(b.Devices, " ") != strings.Join(a.Devices, " ") {
			t.Errorf("%+v became %+v, %v", a, b, err)
		}
	})
}

// TestOnlyRootMayEnterTheDirectoryOfAllocations, and a directory with foreign files is rejected.
func TestOnlyRootMayEnterTheDirectoryOfAllocations(t *testing.T) {
	id := strings.Repeat("x", idLength)
	for _, tt := range []struct {
		name string
		make func(root string) error
		text string // of the error, "" for success
	}{
		{"a missing directory is created", func(string) error { return nil }, ""},
		{"an existing directory is used", func(root string) error { return os.Mkdir(root, 0o700) }, ""},
		{"an open directory with only Weft's files is restricted", func(root string) error {
			return errors.Join(os.Mkdir(root, 0o755), os.Mkdir(root+"/"+id, 0o755),
				os.WriteFile(root+"/"+id+".json", nil, 0o600))
		}, ""},
		{
			"a directory with foreign files is rejected",
			func(root string) error { return errors.Join(os.Mkdir(root, 0o755), os.Mkdir(root+"/snap", 0o755)) },
			"snap",
		},
		{
			"a symlink is rejected", func(root string) error { return os.Symlink(os.TempDir(), root) },
			"not a directory owned by root",
		},
		{
			"a file is rejected", func(root string) error { return os.WriteFile(root, nil, 0o600) },
			"not a directory owned by root",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir() + "/memif"
			if err := tt.make(root); err != nil {
				t.Fatal(err)
			}
			before := mode(root)
			err := secureRoot(root)
			if tt.text == "" && (err != nil || mode(root) != "drwx------") {
				t.Errorf("error %v, mode %s", err, mode(root))
			}
			if tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text) || mode(root) != before) {
				t.Errorf("error %v, mode %s", err, mode(root))
			}
		})
	}
}

// TestChangedRootKeepsExistingAllocations: allocations stay in their directory.
func TestChangedRootKeepsExistingAllocations(t *testing.T) {
	n := newNode(t)
	n.admit(t, podOf("a", 1))
	had := n.Allocations()[0]
	n.stop()
	if err := os.RemoveAll(n.config.Directories.Root); err != nil { // as a reboot does
		t.Fatal(err)
	}
	n.config.Directories.Root = n.dir + "/other"
	n.boot(t)
	n.present(t)
	if got := n.mustAdd(t, "a", "s1").Interfaces[0].Memif.Allocation; got != had.ID ||
		mode(had.Directory) != "drwxr-xr-x" {
		t.Errorf("allocation %s, had %s; its directory has mode %q", got, had.ID, mode(had.Directory))
	}
	n.admit(t, podOf("b", 1))
	if got := n.Allocations()[1].Directory; !strings.HasPrefix(got, n.config.Directories.Root+"/") {
		t.Errorf("a new allocation is at %s", got)
	}
}

// TestEveryRecordThatIsWrittenIsRead: the largest accepted claim survives the loss of the state file after a grant with
// long names, and a larger one is refused before anything is written.
func TestEveryRecordThatIsWrittenIsRead(t *testing.T) {
	n := bareNode(t, claims)
	device := func(pods int) pod.ClaimedDevice {
		d := deviceOf("c", 4, "a")
		for i := len(d.Pods); i < pods; i++ {
			d.Pods = append(d.Pods, fmt.Sprintf("%036d", i))
		}
		return d
	}
	var refusal error
	too := sort.Search(4000, func(pods int) bool {
		_, err := n.Claim(t.Context(), claimOf("c"), []pod.ClaimedDevice{device(pods)})
		if err != nil {
			refusal = err
		}
		return err != nil
	})
	if too < 1000 || too == 4000 || !strings.Contains(refusal.Error(), "reserve the claim for fewer pods") {
		t.Fatalf("%d pods are too many: %v", too, refusal)
	}
	want := n.claim(t, "c", device(too-1))[0]
	grants, err := n.Claimed(t.Context(), idOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	key := keyOf("s")
	key.Network = strings.Repeat("n", 255)
	key.ContainerID = strings.Repeat("c", 255)
	id := pod.ID{Namespace: "shop", Name: strings.Repeat("p", 253), UID: idOf("a").UID}
	add := &pod.AddPod{Request: pod.Request{
		Key:      key,
		ID:       id,
		Netns:    pod.Netns{Path: "/" + strings.Repeat("r", 4095), Inode: 1},
		Resolved: pod.Resolved{Grants: grants},
	}}
	if _, err := n.loop.Do(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.loseState()
	all := n.nextManager(t).Allocations()
	if len(all) != 1 || all[0].Secret != want.Secret || all[0].Pod != id || all[0].Claim == nil ||
		len(all[0].Claim.Pods) != too-1 {
		t.Errorf("%d allocations, %.300v", len(all), all)
	}
}

// A record above the limit, is reported with its size, and not as damaged JSON.
func TestLargeRecordIsReported(t *testing.T) {
	path := t.TempDir() + "/r.json"
	for size, want := range map[int]string{maxRecord: "", maxRecord + 1: "more than 65536 bytes"} {
		if err := os.WriteFile(path, []byte(strings.Repeat(" ", size)), 0o600); err != nil {
			t.Fatal(err)
		}
		raw, err := readOwned(path, os.Geteuid(), 0o077)
		if want == "" && (err != nil || len(raw) != size) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d bytes: %d are read: %v", size, len(raw), err)
		}
	}
}
