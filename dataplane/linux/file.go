package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
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

// files is the backend of files. It finds a file only by its name: a component that makes directories with random names finds those without
// an owner itself.
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

// putDirectory makes a directory, or takes the one that is there. It is closed until it has its owner.
func (s spot) putDirectory(v wire.File) error {
	err := unix.Mkdirat(s.dir, s.base, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make directory %s: %w", s.name, err)
	}
	fd, st, err := s.hold()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if mode := modeOf(st); !mode.IsDir() {
		return s.inTheWay(mode, v.Type)
	}
	err = s.own(fd, v)
	if err != nil && made {
		_ = unix.Unlinkat(s.dir, s.base, unix.AT_REMOVEDIR)
	}
	return err
}

// unfinished starts the name of a regular file that is being written. A leftover of a crash is
// harmless: the next file of the same name replaces it.
const unfinished = ".weft-unfinished-"

// putRegular writes a new file beside the old one, with its owner and mode, and puts it in its place: who reads has all
// of one or all of the other, and never what he may not have.
func (s spot) putRegular(v wire.File) error {
	if err := s.mayReplace(); err != nil {
		return err
	}
	beside := spot{s.dir, unfinished + s.base, s.name}
	fd, err := beside.begin()
	if err != nil {
		return err
	}
	if err = beside.write(fd, v); err == nil {
		if err = unix.Renameat(s.dir, beside.base, s.dir, s.base); err == nil {
			return nil
		}
		err = fmt.Errorf("put %s in its place: %w", s.name, err)
	}
	return errors.Join(err, beside.discard())
}

// mayReplace rejects an existing file of a type that is not there by mistake. A symbolic link may have been planted by a pod: it is replaced,
// and its target is not touched.
func (s spot) mayReplace() error {
	mode, err := s.mode()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil && !mode.IsRegular() && mode&fs.ModeSymlink == 0 {
		return s.inTheWay(mode, wire.RegularFile)
	}
	return err
}

// begin makes the empty file that only we can read.
func (s spot) begin() (fd int, err error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err = unix.Openat(s.dir, s.base, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		if err = s.discard(); err == nil {
			fd, err = unix.Openat(s.dir, s.base, flags, 0o600)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("begin %s: %w", s.name, err)
	}
	return fd, nil
}

// write fills the file and closes it. It is on the disk before it gets its name, so that a crash leaves none empty.
func (s spot) write(fd int, v wire.File) error {
	f := os.NewFile(uintptr(fd), s.base)
	_, err := f.WriteString(v.Content + string(v.Secret))
	if err == nil {
		err = s.own(fd, v)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", s.name, err)
	}
	return nil
}

// discard removes an unfinished file.
func (s spot) discard() error {
	if err := unix.Unlinkat(s.dir, s.base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", s.base, err)
	}
	return nil
}

// errNoSocket means that who makes a socket has not made it; it may still come.
var errNoSocket = errors.New("is not there yet: no process listens on it")

// putSocket sets mode and owner of a socket that another component made. Where the dataplane did, it finds nothing to do.
func (s spot) putSocket(v wire.File) error {
	fd, st, err := s.hold()
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("socket %s %w", s.name, errNoSocket)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return s.inTheWay(modeOf(st), v.Type)
	}
	if st.Nlink != 1 { // a hard link to it may belong to a third party
		return fmt.Errorf("socket %s has %d names (hard links), expected 1: remove it", s.name, st.Nlink)
	}
	return s.own(fd, v)
}

// own gives what a descriptor holds its owner, group and mode. It does nothing where they are right already.
func (s spot) own(fd int, v wire.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", s.name, err)
	}
	if int(st.Uid) != v.UID || int(st.Gid) != v.GID {
		if err := s.give(fd, v); err != nil {
			return err
		}
	} else if permissions(&st) == bits(v.Mode) {
		return nil
	}
	if err := unix.Chmod(held(fd), bits(v.Mode)); err != nil {
		return fmt.Errorf("set mode %s of %s: %w", v.Mode, s.name, err)
	}
	// The kernel drops setgid without a word for who may not set it.
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", s.name, err)
	}
	if got := permissions(&st); got != bits(v.Mode) {
		return fmt.Errorf("set mode %s of %s: the kernel made it %#o", v.Mode, s.name, got)
	}
	return nil
}

// give changes owner and group. What the old group was allowed is taken away before, so that the new one never has it,
// and the new mode comes after: a change of owner may cost mode bits.
func (s spot) give(fd int, v wire.File) error {
	if err := unix.Chmod(held(fd), bits(v.Mode)&0o700); err != nil {
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	if err := unix.Fchownat(fd, "", v.UID, v.GID, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("give %s to %d:%d: %w", s.name, v.UID, v.GID, err)
	}
	return nil
}

func permissions(st *unix.Stat_t) uint32 { return st.Mode & 0o7777 }

// bits is a mode as the kernel has it.
func bits(m fs.FileMode) uint32 {
	b := uint32(m.Perm())
	if m&fs.ModeSetgid != 0 {
		b |= unix.S_ISGID
	}
	return b
}
