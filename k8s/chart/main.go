// Command chart renders the Helm chart in k8s/chart/weft to the manifests in k8s/manifests.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

func main() {
	dir := flag.String("chart", "k8s/chart/weft", "the chart")
	out := flag.String("o", "k8s/manifests", "the directory to write manifests to")
	flag.Parse()
	if err := write(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func write(dir, out string) error {
	for name, changes := range manifests {
		text, err := manifest(dir, changes)
		if err != nil {
			return err
		}
		if err := renameio.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
