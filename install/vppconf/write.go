package vppconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Run writes the configuration for this node to o.Output, or to stdout. It replaces the file atomically, and restricts the runtime
// directory to the caller (0700): its sockets control VPP.
func Run(o *Options, stdout io.Writer) error {
	allowed, err := AllowedCPUs()
	if err != nil {
		return err
	}
	m, err := Detect(os.DirFS("/"), allowed)
	if err != nil {
		return err
	}
	config, err := New(o, &m)
	if err != nil {
		return err
	}
	if o.Output == "" {
		_, err := io.WriteString(stdout, config.String())
		return err
	}
	if err := restrictDir(o.RuntimeDir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.Output), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(o.Output, []byte(config.String()), 0o600)
}

// restrictDir creates a directory that only its owner may enter, or restricts an existing one.
func restrictDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "restrict", Path: dir, Err: errors.New("it is not a directory")}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("restrict the runtime directory to its owner: %w", err)
	}
	return nil
}
