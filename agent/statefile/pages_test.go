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

// TestADamagedPageIsFoundBeforeItIsFollowed has a file of several levels. bbolt alone ends the process on each of these.
func TestADamagedPageIsFoundBeforeItIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	var values []eventloop.Saved
	for i := range 400 {
		values = append(values, eventloop.Saved{Bucket: BucketLeases, Key: fmt.Sprintf("%04d", i), Value: strings.Repeat("x", 500)})
	}
	save(t, s, values...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := os.Getpagesize()
	branch := size
	for binary.NativeEndian.Uint16(sound[branch+8:]) != branchPage {
		branch += size
	}
	child := branch + pageHeader + 8
	for name, change := range map[string]func(b []byte) []byte{
		"its end is missing":                  func(b []byte) []byte { return b[:3*size] },
		"the second meta page is cut":         func(b []byte) []byte { return b[:2*size-7] },
		"only its first octets are there":     func(b []byte) []byte { return b[:100] },
		"its end within a page is missing":    func(b []byte) []byte { return b[:2*size+100] },
		"a page that is behind its end":       func(b []byte) []byte { binary.NativeEndian.PutUint64(b[child:], 1<<40); return b },
		"a page that leads back to itself":    func(b []byte) []byte { binary.NativeEndian.PutUint64(b[child:], uint64(branch/size)); return b },
		"a page with billions of others":      func(b []byte) []byte { binary.NativeEndian.PutUint32(b[branch+12:], 1<<32-1); return b },
		"a page with a key behind its end":    func(b []byte) []byte { binary.NativeEndian.PutUint32(b[branch+pageHeader+4:], 1<<31); return b },
		"a page with too many elements":       func(b []byte) []byte { binary.NativeEndian.PutUint16(b[branch+10:], 1<<16-1); return b },
		"a page that is of no kind":           func(b []byte) []byte { b[branch+8] = 3; return b },
		"a page that the meta page calls its": func(b []byte) []byte { binary.NativeEndian.PutUint64(b[child:], 1); return b },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(path, change(append([]byte(nil), sound...)), 0o600); err != nil {
				t.Fatal(err)
			}
			if s := openState(t, path); s.Quarantined == "" {
				t.Error("it was accepted")
			}
		})
	}
}

// TestASoundFileIsNotTakenForDamaged writes and deletes at random, and opens the file after each step.
func TestASoundFileIsNotTakenForDamaged(t *testing.T) {
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
				v := eventloop.Saved{Bucket: rapid.SampledFrom(allBuckets[1:]).Draw(rt, "bucket"), Key: rapid.StringMatching("[a-z]{1,3}").Draw(rt, "key")}
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

func TestAnAttachmentThatIsNullIsOwed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	save(t, s, eventloop.Saved{Bucket: BucketAttachments, Key: "a", Value: (*int)(nil)}, eventloop.Saved{Bucket: BucketMeta, Key: KeyOwes})
	s.Owes = false
	if got, err := Load[*int](s, BucketAttachments, quiet); len(got) > 0 || err != nil || !s.Owes {
		t.Errorf("%v, %v, the file owes: %v", got, err, s.Owes)
	}
}
