package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
)

// The file has branch pages. Without checkPages bbolt ends the process in each case.
func TestDamagedPagesAreDetected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	var values []eventloop.Saved
	for i := range 400 {
		values = append(values, eventloop.Saved{
			Bucket: BucketLeases,
			Key:    fmt.Sprintf("%04d", i),
			Value:  strings.Repeat("x", 500),
		})
	}
	save(t, s, values...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	valid, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := os.Getpagesize()
	branch := size
	for binary.NativeEndian.Uint16(valid[branch+8:]) != branchPage {
		branch += size
	}
	child := branch + pageHeader + 8
	for name, change := range map[string]func(b []byte) []byte{
		"truncated after a page":     func(b []byte) []byte { return b[:3*size] },
		"truncated second meta page": func(b []byte) []byte { return b[:2*size-7] },
		"only 100 bytes":             func(b []byte) []byte { return b[:100] },
		"truncated within a page":    func(b []byte) []byte { return b[:2*size+100] },
		"a page beyond the end": func(b []byte) []byte {
			binary.NativeEndian.PutUint64(b[child:], 1<<40)
			return b
		},
		"a cycle": func(b []byte) []byte {
			binary.NativeEndian.PutUint64(b[child:], uint64(branch/size))
			return b
		},
		"billions of further pages": func(b []byte) []byte {
			binary.NativeEndian.PutUint32(b[branch+12:], 1<<32-1)
			return b
		},
		"a key beyond the end of a page": func(b []byte) []byte {
			binary.NativeEndian.PutUint32(b[branch+pageHeader+4:], 1<<31)
			return b
		},
		"too many elements": func(b []byte) []byte {
			binary.NativeEndian.PutUint16(b[branch+10:], 1<<16-1)
			return b
		},
		"an unknown kind of page": func(b []byte) []byte { b[branch+8] = 3; return b },
		"the meta page as a child": func(b []byte) []byte {
			binary.NativeEndian.PutUint64(b[child:], 1)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(path, change(append([]byte(nil), valid...)), 0o600); err != nil {
				t.Fatal(err)
			}
			if s := openState(t, path); s.Quarantined == "" {
				t.Error("the file was accepted")
			}
		})
	}
}

// Random writes and deletes leave a valid file.
func TestValidFilesAreNotMovedAside(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(dir, "state.db")
		_ = os.Remove(path)
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			s, err := Open(t.Context(), path, quiet)
			if err != nil || s.Quarantined != "" {
				rt.Fatalf("moved to %q, %v", s.Quarantined, err)
			}
			var values []eventloop.Saved
			for range rapid.IntRange(0, 200).Draw(rt, "values") {
				v := eventloop.Saved{
					Bucket: rapid.SampledFrom(allBuckets[1:]).Draw(rt, "bucket"),
					Key:    rapid.StringMatching("[a-z]{1,3}").Draw(rt, "key"),
				}
				if size := rapid.SampledFrom([]int{-1, 0, 20, 300, 5000, 20000}).Draw(rt, "size"); size >= 0 {
					v.Value = strings.Repeat("x", size)
				}
				values = append(values, v)
			}
			if err := errors.Join(s.Save(t.Context(), values), s.Close()); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func TestNullAttachmentMakesTheFileIncomplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	save(t, s, eventloop.Saved{Bucket: BucketAttachments, Key: "a", Value: (*int)(nil)}, eventloop.Saved{
		Bucket: BucketMeta,
		Key:    KeyIncomplete,
	})
	s.Incomplete = false
	if got, err := Load[*int](s, BucketAttachments, quiet); len(got) > 0 || err != nil || !s.Incomplete {
		t.Errorf("%v, %v, incomplete: %v", got, err, s.Incomplete)
	}
}
