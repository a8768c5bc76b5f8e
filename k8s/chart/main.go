// Command chart renders the Helm chart beside it, with the chart's own values, into the plain manifest of k8s/manifests.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/google/renameio/v2"
)

func main() {
	dir := flag.String("chart", "k8s/chart/weft", "the chart")
	out := flag.String("o", "k8s/manifests/weft.yaml", "the manifest to write")
	flag.Parse()
	if err := write(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func write(dir, out string) error {
	text, err := manifest(dir)
	if err != nil {
		return err
	}
	return renameio.WriteFile(out, text, 0o644)
}
