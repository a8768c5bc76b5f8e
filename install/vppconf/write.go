package vppconf

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/weftnet/weft/internal/privatedir"
)

// Run writes the configuration for this node to o.Output, or to stdout. It replaces the file atomically, and restricts
// the runtime directory to the caller (0700): its sockets control VPP.
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
	if err := privatedir.Make(o.RuntimeDir); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(o.Output), 0o700); err != nil {
		return err
	}
	path := o.Output
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link to the file stays
	}
	return renameio.WriteFile(path, []byte(config.String()), 0o600)
}
