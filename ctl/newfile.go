package ctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// newFile is the file of the flag --write. Only its owner can read it. A device or a named pipe is written as it is;
// another file must not exist before:
//
//	                     finish(complete)
//	reserved, temporary ------------------> complete, with its name
//	          |          finish(not complete)
//	          +---------------------------> not there
//
// A file that grows has its name from the beginning and is kept, so that other programs can follow it.
type newFile struct {
	*os.File
	path      string
	temporary bool // the content has another name yet
	special   bool // a device or a named pipe
}

// createFile reserves the name of a file.
func createFile(path string, grows bool) (*newFile, error) {
	if isSpecial(path) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &newFile{File: f, path: path, special: true}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil, fmt.Errorf("%s exists; choose another --write", path)
	case err != nil:
		return nil, err
	case grows:
		return &newFile{File: f, path: path}, nil
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &newFile{File: temporary, path: path, temporary: true}, nil
}

// isSpecial reports whether a path leads to something that has no content of its own.
func isSpecial(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0
}

// finish closes the file. A file that is incomplete, or empty, is removed.
func (f *newFile) finish(isComplete bool) error {
	info, err := f.Stat()
	isEmpty := err == nil && info.Size() == 0
	err = errors.Join(err, f.Close())
	switch {
	case f.special:
		return err
	case err != nil || !isComplete || isEmpty:
		if f.temporary {
			err = errors.Join(err, os.Remove(f.Name()))
		}
		return errors.Join(err, os.Remove(f.path))
	case f.temporary:
		return os.Rename(f.Name(), f.path)
	}
	return nil
}

// writeFile writes a file that must not exist.
func writeFile(path string, content []byte) error {
	f, err := createFile(path, false)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.finish(err == nil))
}
