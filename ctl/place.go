package ctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// located adds to the error of a missing file with a relative path where it was looked for. After nsenter, or in a
// container, the working directory differs from the directory of the caller's shell.
func located(err error) error {
	wrong, is := errors.AsType[*fs.PathError](err)
	if !is || filepath.IsAbs(wrong.Path) || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w (%s)", err, placeOf(wrong.Path))
}

// placeOf says which file a relative path names.
func placeOf(path string) string {
	directory, err := os.Getwd()
	if err != nil {
		return "the working directory does not exist here: use an absolute path"
	}
	return fmt.Sprintf("looked for %s: the working directory is %s", filepath.Join(directory, path), directory)
}
