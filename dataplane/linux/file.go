package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// FileLane is the scheduler's lane of files: they need not wait for the kernel's network, nor it for them.
const FileLane = "files"

type fileItem = kvscheduler.Item[wire.File, struct{}]

// files are known by their names alone. What nobody knows any more is not found here: who makes directories of random
// names looks there for those that nobody owns.
type files struct{}

func fileDescriptor() kvscheduler.Descriptor[wire.File, struct{}] {
	return kvscheduler.Descriptor[wire.File, struct{}]{
		Name: wire.KindFile, Lane: FileLane,
		Equal:    func(want, have wire.File) bool { return want == have },
		Validate: validateFile,
		Deps: func(_ string, v wire.File) []kvscheduler.Dep {
			if v.On == "" {
				return nil
			}
			return []kvscheduler.Dep{{Label: "what it stands on", On: refOf(v.On)}}
		},
		Recreate: func(have, want wire.File) bool { return have.Type != want.Type },
		Merge:    asKnown,
		Redact:   redactFile,
		Encode:   encodeFile,
		Decode:   decodeFile,
		Backend:  files{},
	}
}

// maxBase leaves room for the name of what is not yet finished: the kernel takes 255 bytes.
const maxBase = 255 - len(unfinished)

func validateFile(name string, v wire.File) error {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0):
		return fmt.Errorf("name %q is not an absolute, clean path", name)
	case strings.Count(name, "/") < 2:
		return fmt.Errorf("%s stands in the root directory, where nothing is ours", name)
	case len(name) >= unix.PathMax || len(path.Base(name)) > maxBase:
		return fmt.Errorf("%s is too long: its last part has at most %d bytes", name, maxBase)
	case v.UID < 0 || v.UID >= math.MaxUint32 || v.GID < 0 || v.GID >= math.MaxUint32:
		return fmt.Errorf("owner %d, group %d: one is no number of an account", v.UID, v.GID)
	case v.Content != "" && v.Secret != "":
		return errors.New("content and secret: a file holds one of them")
	case v.Type != wire.RegularFile && (v.Content != "" || v.Secret != ""):
		return fmt.Errorf("type %q has no content", v.Type)
	}
	if v.On != "" {
		if _, err := kvscheduler.ParseRef(v.On); err != nil {
			return fmt.Errorf("what it stands on: %w", err)
		}
	}
	return validateMode(v)
}

func validateMode(v wire.File) error {
	allowed := fs.ModePerm
	switch v.Type {
	case wire.Directory:
		allowed |= fs.ModeSetgid
	case wire.RegularFile, wire.Socket:
	default:
		return fmt.Errorf("type %q is not known", v.Type)
	}
	if v.Mode&^allowed != 0 {
		return fmt.Errorf("mode %s of a %s has more than permissions", v.Mode, v.Type)
	}
	return nil
}

// asKnown gives a file that was read back the form of the value that is known of it: which of its two fields holds the
// text, and what it stands on.
func asKnown(dumped, last wire.File) wire.File {
	dumped.On = last.On
	if last.Secret == "" {
		dumped.Content, dumped.Secret = dumped.Content+string(dumped.Secret), ""
	}
	return dumped
}

func redactFile(v wire.File) wire.File {
	if v.Secret != "" {
		v.Secret = secret.Hidden
	}
	return v
}

// storedFile is a file as the journal keeps it, with its secret.
type storedFile struct {
	wire.File
	Secret string `json:"secret,omitempty"`
}

func encodeFile(v wire.File) ([]byte, error) {
	return json.Marshal(storedFile{v, string(v.Secret)})
}

func decodeFile(b []byte) (wire.File, error) {
	var stored storedFile
	err := json.Unmarshal(b, &stored)
	stored.File.Secret = secret.Text(stored.Secret)
	return stored.File, err
}

// Create makes the files; of sockets, which others make, it sets mode and owner.
func (files) Create(ctx context.Context, batch []fileItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refused(at(it.Name, func(s spot) error { return s.put(it.Want) }))
		}
	}
}

// Update replaces a regular file, and sets mode and owner of the others.
func (f files) Update(ctx context.Context, batch []fileItem) { f.Create(ctx, batch) }

// Delete removes directories with all that is in them, and files. A socket is left to who made it: as long as that is
// there it listens, and what a dataplane leaves behind goes with its directory. What is of another type by now is not ours.
func (files) Delete(ctx context.Context, batch []fileItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil || it.Have.Type == wire.Socket {
			continue
		}
		err := at(it.Name, func(s spot) error { return s.remove(ctx, it.Have.Type) })
		if err != nil && !isElsewhere(err) {
			it.Err = err // of a directory a part may be gone
		}
	}
}

// Dump reads the known files back.
func (f files) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.File, struct{}], error] {
	var names []string
	for name := range view.All(wire.KindFile) {
		names = append(names, name)
	}
	return f.Read(ctx, view, names)
}

// Read is Dump for named files. One of another type than is known is left out: making the file then says what is in its
// way, and nothing that is not ours is removed for it.
func (files) Read(ctx context.Context, view kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.File, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.File, struct{}], error) bool) {
		for _, name := range names {
			v, found, err := readKnown(name, known[wire.File](view, wire.KindFile, name))
			if err == nil {
				err = ctx.Err()
			}
			if (found || err != nil) && !yield(kvscheduler.Actual[wire.File, struct{}]{Name: name, V: v}, err) {
				return
			}
		}
	}
}

// readKnown reads a file of one of the known types, and no more of it than shows whether it is as known.
func readKnown(name string, known []wire.File) (v wire.File, found bool, err error) {
	limit := 0
	for _, k := range known {
		limit = max(limit, len(k.Content)+len(k.Secret)+1)
	}
	err = at(name, func(s spot) error {
		v, err = s.read(limit)
		return err
	})
	if isElsewhere(err) {
		return v, false, nil
	}
	for _, k := range known {
		found = found || k.Type == v.Type
	}
	return v, found, err
}
