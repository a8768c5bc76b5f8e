package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
)

// FuzzStateFile opens a state file with some bytes changed and its end cut off: it is read, refused by version, or
// moved aside, and values that are saved afterwards exist.
func FuzzStateFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "state.db")
	s, err := statefile.Open(f.Context(), path, quiet)
	if err != nil {
		f.Fatal(err)
	}
	values := []eventloop.Saved{
		{
			Bucket: statefile.BucketAttachments,
			Key:    "a",
			Value:  pod.Attachment{Key: pod.Key{Network: "weft", ContainerID: "c1", IfName: "eth0"}},
		},
	}
	for _, key := range []string{"a", "b", "c"} {
		values = append(values, eventloop.Saved{
			Bucket: statefile.BucketLeases,
			Key:    key,
			Value:  strings.Repeat("x", 3000),
		})
	}
	if err := errors.Join(s.Save(f.Context(), values), s.Close()); err != nil {
		f.Fatal(err)
	}
	intact, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	page := uint32(os.Getpagesize())
	f.Add(uint32(0), uint64(0), uint32(len(intact)))
	f.Add(2*page+8, uint64(0xa5a5a5a5a5a5a5a5), uint32(len(intact)))
	f.Add(3*page, uint64(1<<40), uint32(len(intact)))
	f.Add(uint32(0), uint64(0), 2*page+100)
	// kind, count and overflow of each page, and its first element
	for at := page * 2; at < uint32(len(intact)); at += page {
		f.Add(at+8, uint64(0xffffffff00ff0002), uint32(len(intact)))
		f.Add(at+16, uint64(0x0000ffffffffffff), uint32(len(intact)))
	}
	f.Fuzz(func(t *testing.T, at uint32, change uint64, size uint32) {
		raw := append([]byte(nil), intact...)
		for i := range 8 {
			raw[(int(at)+i)%len(raw)] ^= byte(change >> (8 * i))
		}
		path := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(path, raw[:min(int(size), len(raw))], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := statefile.Open(t.Context(), path, quiet)
		if err != nil {
			if !strings.Contains(err.Error(), "schema") {
				t.Fatalf("bytes %x at %d, size %d: %v", change, at, size, err)
			}
			return
		}
		read(t, s)
		if err := errors.Join(
			s.Save(t.Context(), []eventloop.Saved{{Bucket: statefile.BucketLeases, Key: "new", Value: 7}}),
			s.Close()); err != nil {
			t.Fatalf("bytes %x at %d, size %d: %v", change, at, size, err)
		}
		s, err = statefile.Open(t.Context(), path, quiet)
		if err != nil || s.Quarantined != "" {
			t.Fatalf("second open: %v, moved to %q", err, s.Quarantined)
		}
		var kept int
		if there, err := s.Get(statefile.BucketLeases, "new", &kept); !there || kept != 7 || err != nil {
			t.Errorf("the saved value is %d, %v, %v", kept, there, err)
		}
		_ = s.Close()
	})
}

var fuzzedBuckets = []string{
	statefile.BucketMeta, statefile.BucketAttachments, statefile.BucketLeases, statefile.BucketNetworks,
	statefile.BucketDevices,
	statefile.BucketCluster, statefile.BucketNodes, statefile.BucketBlocks, statefile.BucketPools,
	statefile.BucketExternals,
	statefile.BucketApplied, statefile.BucketTransactions, statefile.BucketQuarantine, statefile.BucketChains,
	eventloop.RecordsBucket,
}

// FuzzStateEntry puts any entry into a state file. Unreadable entries are skipped, and mark the file as incomplete.
func FuzzStateEntry(f *testing.F) {
	for i := range fuzzedBuckets {
		f.Add(uint8(i), "k", []byte("null"))
		f.Add(uint8(i), "k",
			[]byte(`{"key":{"network":"weft","containerID":"c1","ifName":"eth0"},"seq":1,"ref":"a/b"}`))
	}
	f.Add(uint8(0), "schema", []byte{1})
	f.Add(uint8(0), "schema", []byte{0, 0, 0, 2})
	f.Add(uint8(0), "owes", []byte{})
	path := filepath.Join(f.TempDir(), "state.db")
	f.Fuzz(func(t *testing.T, bucket uint8, key string, raw []byte) {
		if key == "" || len(key) > 1000 || len(raw) > 1<<16 {
			return
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		s, err := statefile.Open(t.Context(), path, quiet)
		if err != nil {
			t.Fatal(err)
		}
		name := fuzzedBuckets[int(bucket)%len(fuzzedBuckets)]
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(name)).Put([]byte(key), raw) })
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if s, err = statefile.Open(t.Context(), path, quiet); err != nil {
			if name != statefile.BucketMeta || key != "schema" {
				t.Fatalf("%s/%s = %q: %v", name, key, raw, err)
			}
			return
		}
		defer s.Close()
		s.Incomplete = false
		all := read(t, s)
		if name == statefile.BucketAttachments && all == 0 && !s.Incomplete {
			t.Errorf("attachment %q is lost, and the file does not owe it", raw)
		}
	})
}

// read reads all of a state file, as a restart does, and counts the attachments.
func read(t *testing.T, s *statefile.File) int {
	t.Helper()
	attachments, err := statefile.Load[*pod.Attachment](s, statefile.BucketAttachments, quiet)
	for _, a := range attachments {
		if a == nil {
			t.Error("nil attachment")
		}
	}
	records, errRecords := statefile.Load[*kvscheduler.Record](s, statefile.BucketTransactions, quiet)
	for _, r := range records {
		if r == nil {
			t.Error("nil transaction")
		}
	}
	_, errLeases := statefile.Load[ipam.Lease](s, statefile.BucketLeases, quiet)
	_, errDevices := statefile.Load[devicemanager.Saved](s, statefile.BucketDevices, quiet)
	_, errNetworks := statefile.Load[networks.SavedNetwork](s, statefile.BucketNetworks, quiet)
	_, errQuarantine := statefile.Load[recovery.Suspicion](s, statefile.BucketQuarantine, quiet)
	_, errEvents := statefile.Load[eventloop.Record](s, eventloop.RecordsBucket, quiet)
	if err := errors.Join(err, errRecords, errLeases, errDevices, errNetworks, errQuarantine, errEvents); err != nil {
		t.Error(err)
	}
	for e, err := range s.Journal.Load() {
		_ = e
		_ = err
	}
	return len(attachments)
}
