// Command render renders the Helm chart in k8s/chart/weft to the manifests in k8s/manifests.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/weftnet/weft/k8s/chart"
)

// heading is the first line of the manifests.
const heading = "# Rendered from the chart in k8s/chart/weft by `go run ./k8s/chart/render`. Do not edit it: edit the chart.\n"

// namespace is the namespace of the manifests.
const namespace = "weft-system"

// manifest is a rendered file.
type manifest struct {
	values    map[string]any // that differ from the default
	templates []string
}

// daemons are the templates of the programs. The rights are separate files.
var daemons = []string{"config.yaml", "vswitch.yaml", "vpp.yaml", "agent.yaml", "controller.yaml"}

var manifests = map[string]manifest{
	"weft.yaml": {nil, daemons},
	"weft-vpp.yaml": {
		map[string]any{"config": map[string]any{"dataplane": map[string]any{"type": "vpp"}}}, daemons,
	},
	"rbac.yaml": {
		map[string]any{"namespace": map[string]any{"create": true}}, []string{"namespace.yaml", "rbac.yaml"},
	},
	"admission.yaml":      {nil, []string{"admission.yaml"}},
	"annotate.yaml":       {nil, []string{"annotate.yaml"}},
	"network-status.yaml": {nil, []string{"network-status.yaml"}},
	"pods.yaml":           {nil, []string{"pods.yaml"}},
	"memif-limits.yaml": {
		map[string]any{"admission": map[string]any{"setMemifLimits": true}}, []string{"memif-limits.yaml"},
	},
	"claim-parameters.yaml": {nil, []string{"claim-parameters.yaml"}},
	"claims.yaml":           {map[string]any{"claims": true}, []string{"claims.yaml"}},
	"operator.yaml":         {map[string]any{"operatorRoles": true}, []string{"operator.yaml"}},
	"taint.yaml": {
		map[string]any{"controller": map[string]any{"untaintNodes": true}}, []string{"taint.yaml"},
	},
	"persistent-ips.yaml": {
		map[string]any{"controller": map[string]any{"persistentIPs": true}}, []string{"persistent-ips.yaml"},
	},
	"endpoints.yaml": {
		map[string]any{"controller": map[string]any{"serviceEndpoints": true}}, []string{"endpoints.yaml"},
	},
}

func main() {
	crds := flag.String("crds", "k8s/chart/weft/files/crds", "directory of the custom resource definitions")
	out := flag.String("o", "k8s/manifests", "directory to write to")
	flag.Parse()
	if err := write(*crds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// write writes all manifests, and copies of the custom resource definitions.
func write(crds, out string) error {
	files, err := rendered()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(out, "crds"), 0o755); err != nil {
		return err
	}
	definitions, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return fmt.Errorf("%s has no custom resource definitions", crds)
	}
	for _, file := range definitions {
		if files["crds/"+filepath.Base(file)], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	files["kustomization.yaml"] = kustomization(slices.Sorted(maps.Keys(files)))
	for name, text := range files {
		if err := renameio.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// installed are the manifests of an installation with the default values.
var installed = []string{
	"rbac.yaml", "admission.yaml", "annotate.yaml", "network-status.yaml", "pods.yaml", "claim-parameters.yaml",
	"weft.yaml",
}

// kustomization returns the base of kustomize: the installation, with the name of the image to replace.
func kustomization(files []string) []byte {
	var b strings.Builder
	b.WriteString(heading)
	b.WriteString(
		"# A base for kustomize: kubectl apply -k k8s/manifests, or a kustomization with images and patches (docs/install.md).\n")
	b.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n")
	for _, name := range files {
		if strings.HasPrefix(name, "crds/") {
			fmt.Fprintf(&b, "  - %s\n", name)
		}
	}
	for _, name := range installed {
		fmt.Fprintf(&b, "  - %s\n", name)
	}
	return []byte(b.String())
}

// rendered returns the manifests by their names.
func rendered() (map[string][]byte, error) {
	c, err := chart.Load("")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, m := range manifests {
		texts, err := c.Render(namespace, m.values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var documents [][]byte
		for _, template := range m.templates {
			if text := strings.TrimSpace(texts[template]); text != "" {
				documents = append(documents, []byte(text+"\n"))
			}
		}
		files[name] = append([]byte(heading), bytes.Join(documents, []byte("---\n"))...)
	}
	return files, nil
}
