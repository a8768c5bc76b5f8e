package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// FileLane is the scheduler's lane of files, which need no netlink.
const FileLane = "files"

type fileItem = kvscheduler.Item[wire.File, struct{}]

// fileDescriptor describes files. Dump finds files by name only: a component that makes directories with random names
// has to find unused ones itself.
func fileDescriptor() kvscheduler.Descriptor[wire.File, struct{}] {
	return kvscheduler.Descriptor[wire.File, struct{}]{
		Name: wire.KindFile, Lane: FileLane,
		Equal:    equal[wire.File],
		Validate: validateFile,
		Deps: func(_ string, v wire.File) []kvscheduler.Dep {
			if v.On == "" {
				return nil
			}
			return []kvscheduler.Dep{{Label: "directory or process", On: parseRef(v.On)}}
		},
		Recreate: func(have, want wire.File) bool { return have.Type != want.Type },
		Merge:    mergeFile,
		Redact:   redactFile,
		Encode:   encodeFile,
		Decode:   decodeFile,
		Backend: simple[wire.File, struct{}]{
			kind: wire.KindFile,
			create: func(it *fileItem) error {
				return refused(withEntry(it.Name, func(s dirEntry) error { return s.put(it.Want) }))
			},
			remove: removeFile,
			read: func(view kvscheduler.View, name string) (v wire.File, _ struct{}, found bool, err error) {
				v, found, err = readKnown(name, knownValues[wire.File](view, wire.KindFile, name))
				return v, struct{}{}, found, err
			},
		},
	}
}

// maxBase leaves room for the prefix of temporary files: the kernel accepts 255 bytes.
const maxBase = 255 - len(tempPrefix)

func validateFile(name string, v wire.File) error {
	switch {
	case !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0):
		return fmt.Errorf("name %q is not an absolute, clean path", name)
	case strings.Count(name, "/") < 2:
		return fmt.Errorf("%s is in the root directory, where Weft creates no files", name)
	case len(name) >= unix.PathMax || len(path.Base(name)) > maxBase:
		return fmt.Errorf("path %s is too long: it has less than %d bytes, and its last element at most %d", name,
			unix.PathMax, maxBase)
	case v.UID < 0 || v.UID >= math.MaxUint32 || v.GID < 0 || v.GID >= math.MaxUint32:
		return fmt.Errorf("owner %d or group %d is not a valid ID", v.UID, v.GID)
	case v.Content != "" && v.Secret != "":
		return errors.New("a file has either content or secret, not both")
	case v.Type != wire.RegularFile && (v.Content != "" || v.Secret != ""):
		return fmt.Errorf("a file of type %q has no content", v.Type)
	}
	if v.On != "" {
		if _, err := kvscheduler.ParseRef(v.On); err != nil {
			return fmt.Errorf("dependency of the file: %w", err)
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
		return fmt.Errorf("unknown type %q", v.Type)
	}
	if v.Mode&^allowed != 0 {
		return fmt.Errorf("mode %s of a %s has bits other than permissions", v.Mode, v.Type)
	}
	return nil
}

// mergeFile takes the dependency, and the field that has the text, from the last applied value.
func mergeFile(dumped, last wire.File) wire.File {
	dumped.On = last.On
	if last.Secret == "" {
		dumped.Content = dumped.Content + string(dumped.Secret)
		dumped.Secret = ""
	}
	return dumped
}

func redactFile(v wire.File) wire.File {
	if v.Secret != "" {
		v.Secret = secret.Hidden
	}
	return v
}

// storedFile is the encoding of a file in the journal, which includes the secret.
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

// removeFile removes directories with their contents, and regular files. It keeps sockets: the process that made a
// socket may listen on it, and a stale socket is removed with its directory. It keeps files that have another type by
// now. After an error, the outcome is unknown: a part of a directory may be removed.
func removeFile(ctx context.Context, it *fileItem) error {
	if it.Have.Type == wire.Socket {
		return nil
	}
	err := withEntry(it.Name, func(s dirEntry) error { return s.remove(ctx, it.Have.Type) })
	if isAbsent(err) {
		return nil
	}
	return err
}

// readKnown reads a file of one of the known types. It reads only as many bytes as a comparison needs. It finds no file
// of another type: Create then returns an error and does not remove it.
func readKnown(name string, known []wire.File) (v wire.File, found bool, err error) {
	limit := 0
	for _, k := range known {
		limit = max(limit, len(k.Content)+len(k.Secret)+1)
	}
	err = withEntry(name, func(s dirEntry) error {
		v, err = s.read(limit)
		return err
	})
	if isAbsent(err) {
		return v, false, nil
	}
	for _, k := range known {
		found = found || k.Type == v.Type
	}
	return v, found, err
}

// putDirectory makes a directory, or updates the existing one. A new directory is private until it has its owner.
func (s dirEntry) putDirectory(v wire.File) error {
	err := unix.Mkdirat(s.dir, s.base, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make directory %s: %w", s.name, err)
	}
	f, info, err := s.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if !info.IsDir() {
		return s.conflict(info.Mode(), v.Type)
	}
	err = s.setOwnership(f, v)
	if err != nil && made {
		_ = unix.Unlinkat(s.dir, s.base, unix.AT_REMOVEDIR)
	}
	return err
}

// tempPrefix starts the name of a regular file that is being written. The next write of the same file replaces a
// leftover of a crash.
const tempPrefix = ".weft-unfinished-"

// putRegular writes a temporary file with the new owner and mode, and renames it: readers see the old or the new file,
// and only with its permissions.
func (s dirEntry) putRegular(v wire.File) error {
	if err := s.checkReplaceable(); err != nil {
		return err
	}
	temp := dirEntry{s.dir, tempPrefix + s.base, s.name}
	f, err := temp.createTemp()
	if err != nil {
		return err
	}
	if err = temp.write(f, v); err == nil {
		if err = unix.Renameat(s.dir, temp.base, s.dir, s.base); err == nil {
			return nil
		}
		err = fmt.Errorf("rename temporary file to %s: %w", s.name, err)
	}
	return errors.Join(err, temp.removeTemp())
}

// checkReplaceable returns an error for an existing file of another type. It accepts a symbolic link, which a pod may
// have planted: the rename replaces it and keeps its target.
func (s dirEntry) checkReplaceable() error {
	mode, err := s.mode()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil && !mode.IsRegular() && mode&fs.ModeSymlink == 0 {
		return s.conflict(mode, wire.RegularFile)
	}
	return err
}

// createTemp makes an empty file that only the agent can read.
func (s dirEntry) createTemp() (*os.File, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(s.dir, s.base, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		if err = s.removeTemp(); err == nil {
			fd, err = unix.Openat(s.dir, s.base, flags, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create temporary file for %s: %w", s.name, err)
	}
	return os.NewFile(uintptr(fd), s.name), nil
}

// write writes, syncs and closes the file. Without the sync, a crash after the rename could leave an empty file.
func (s dirEntry) write(f *os.File, v wire.File) error {
	_, err := f.WriteString(v.Content + string(v.Secret))
	if err == nil {
		err = s.setOwnership(f, v)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", s.name, err)
	}
	return nil
}

func (s dirEntry) removeTemp() error {
	if err := unix.Unlinkat(s.dir, s.base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", s.base, err)
	}
	return nil
}

// errNoSocket means that another process has not created a socket yet. The error is not permanent.
var errNoSocket = errors.New("does not exist yet: no process listens on it")

// putSocket sets mode and owner of a socket that another process made.
func (s dirEntry) putSocket(v wire.File) error {
	f, info, err := s.open()
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("socket %s %w", s.name, errNoSocket)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info.Mode()&fs.ModeSocket == 0 {
		return s.conflict(info.Mode(), v.Type)
	}
	if names := statOf(info).Nlink; names != 1 { // a hard link to it may belong to a third party
		return fmt.Errorf("socket %s has %d names (hard links), expected 1: remove it", s.name, names)
	}
	return s.setOwnership(f, v)
}

// setOwnership sets owner, group and mode of an open file unless they are right.
func (s dirEntry) setOwnership(f *os.File, v wire.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if st := statOf(info); int(st.Uid) != v.UID || int(st.Gid) != v.GID {
		if err := s.chown(f, v); err != nil {
			return err
		}
	} else if info.Mode()&modeBits == v.Mode {
		return nil
	}
	if err := os.Chmod(fdPath(f), v.Mode); err != nil {
		return fmt.Errorf("set mode %s of %s: %w", v.Mode, s.name, err)
	}
	// Without the capability, the kernel clears setgid and returns no error.
	if info, err = f.Stat(); err != nil {
		return err
	}
	if got := info.Mode() & modeBits; got != v.Mode {
		return fmt.Errorf("set mode %s of %s: the kernel set %s", v.Mode, s.name, got)
	}
	return nil
}

// chown changes owner and group. It first removes the permissions of group and others, so that the new group never has
// the permissions of the old one. The caller sets the mode afterwards, since a change of owner may clear mode bits.
func (s dirEntry) chown(f *os.File, v wire.File) error {
	if err := os.Chmod(fdPath(f), v.Mode&0o700); err != nil {
		return fmt.Errorf("restrict mode of %s: %w", s.name, err)
	}
	if err := unix.Fchownat(int(f.Fd()), "", v.UID, v.GID, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("change owner of %s to %d:%d: %w", s.name, v.UID, v.GID, err)
	}
	return nil
}
