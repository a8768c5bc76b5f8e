package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weftnet/weft/tools/oci"
)

// links are names of weftctl by which kubectl finds its plugin and the completion of it.
var links = []string{"kubectl-weft", "kubectl_complete-weft"}

// programs returns an archive of the programs for an architecture.
func (o options) programs(arch string) ([]byte, error) {
	root := fmt.Sprintf("weft_%s_linux_%s/", o.version, arch)
	return compressed(func(w *tar.Writer) error {
		for _, name := range oci.Programs {
			content, err := os.ReadFile(filepath.Join(o.from, arch, name))
			if err != nil {
				return err
			}
			if err := oci.AddFile(w, root+name, 0o755, content); err != nil {
				return err
			}
		}
		for _, link := range links {
			if err := oci.AddLink(w, root+link, "weftctl"); err != nil {
				return err
			}
		}
		licence, err := os.ReadFile(o.licence)
		if err != nil {
			return err
		}
		return oci.AddFile(w, root+"LICENSE", 0o644, licence)
	})
}

// compressed returns a compressed tar without times of its own.
func compressed(fill func(*tar.Writer) error) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	if err := fill(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
