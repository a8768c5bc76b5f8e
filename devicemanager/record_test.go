package devicemanager

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

func whole() *allocation {
	id := strings.Repeat("x", idLength)
	return &allocation{heir: strings.Repeat("y", idLength), Allocation: pod.Allocation{
		ID: id, Socket: 7, Devices: []string{"memif-0", "memif-12"}, Directory: "/run/weft/memif/" + id,
		Created: time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC), Secret: secret.Text(strings.Repeat("s", secretLength)),
		Pod: pod.ID{Namespace: "shop", Name: "a", UID: "u"}, Container: "c", UID: 1, GID: 2, Granted: true,
		Attachment: pod.Key{Network: "weft", ContainerID: "s1", IfName: "eth0"}, Netns: pod.Netns{Path: "/run/netns/s1", Inode: 3, Device: 4},
	}}
}

// TestWhatIsKeptOfAnAllocationIsAllOfIt in the state file, and but for the secret in the owner record.
func TestWhatIsKeptOfAnAllocationIsAllOfIt(t *testing.T) {
	for field, value := range reflect.ValueOf(whole().Allocation).Fields() {
		if value.IsZero() {
			t.Errorf("this test says nothing of %s", field.Name)
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

func TestAnAllocationThatNobodyMadeIsRefused(t *testing.T) {
	if err := whole().validate(); err != nil {
		t.Fatal(err)
	}
	for name, bend := range map[string]func(*allocation){
		"a name with a slash":        func(a *allocation) { a.ID = "x/" + a.ID[2:] },
		"no secret":                  func(a *allocation) { a.Secret = "" },
		"another's directory":        func(a *allocation) { a.Directory = "/run/weft/memif/other" },
		"a directory with detours":   func(a *allocation) { a.Directory = "/run/weft/../" + a.ID },
		"a relative directory":       func(a *allocation) { a.Directory = a.ID },
		"a device with a slash":      func(a *allocation) { a.Devices = []string{"../memif-1"} },
		"a device written elsewise":  func(a *allocation) { a.Devices = []string{"memif-01"} },
		"a device that no node has":  func(a *allocation) { a.Devices = []string{"memif-1024"} },
		"a user that is none":        func(a *allocation) { a.UID = -1 },
		"a group beyond all numbers": func(a *allocation) { a.GID = 1<<32 - 1 },
	} {
		a := whole()
		bend(a)
		if err := a.validate(); err == nil || strings.Contains(err.Error(), string(whole().Secret)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzOwnerRecord: whatever stands in a record, what is taken from it is an allocation of its own directory, and written
// again it is the same.
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
		files, err := Config{DeviceInfoDir: "/devinfo"}.files(a)
		if err != nil {
			return // a time that JSON cannot hold
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
		if err != nil || b.ID != a.ID || b.Socket != a.Socket || strings.Join(b.Devices, " ") != strings.Join(a.Devices, " ") {
			t.Errorf("%+v became %+v, %v", a, b, err)
		}
	})
}
