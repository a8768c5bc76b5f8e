package programs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// pin is a Go module in a directory below pins that fixes the version of third-party programs.
type pin struct {
	folder   string
	module   string            // its version is the programs' version
	programs map[string]string // name -> package
	stamp    func(version string) string
	request  string // the variable that requests it; "": every cluster needs it
}

const (
	kubernetes = "k8s.io/kubernetes"
	containerd = "github.com/containerd/containerd/v2"
	plugins    = "github.com/containernetworking/plugins"
)

// pinned are in build order: small ones first, so that errors appear early.
var pinned = []pin{
	{folder: "plugins", module: plugins, programs: map[string]string{
		"bridge":     plugins + "/plugins/main/bridge",
		"host-local": plugins + "/plugins/ipam/host-local",
		"loopback":   plugins + "/plugins/main/loopback",
		"portmap":    plugins + "/plugins/meta/portmap",
	}},
	{
		folder:   "etcd",
		module:   "go.etcd.io/etcd/server/v3",
		programs: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
	},
	{
		folder:   "helm",
		request:  "WEFT_E2E_HELM",
		module:   "helm.sh/helm/v4",
		programs: map[string]string{"helm": "helm.sh/helm/v4/cmd/helm"},
	},
	{folder: "containerd", module: containerd, programs: map[string]string{
		"containerd":              containerd + "/cmd/containerd",
		"containerd-shim-runc-v2": containerd + "/cmd/containerd-shim-runc-v2",
		"ctr":                     containerd + "/cmd/ctr",
	}},
	{folder: "kubernetes", module: kubernetes, stamp: stampKubernetes, programs: map[string]string{
		"kube-apiserver":          kubernetes + "/cmd/kube-apiserver",
		"kube-controller-manager": kubernetes + "/cmd/kube-controller-manager",
		"kube-proxy":              kubernetes + "/cmd/kube-proxy",
		"kube-scheduler":          kubernetes + "/cmd/kube-scheduler",
		"kubectl":                 kubernetes + "/cmd/kubectl",
		"kubelet":                 kubernetes + "/cmd/kubelet",
	}},
}

// requested returns the pins of this run.
func requested() []pin {
	return slices.DeleteFunc(slices.Clone(pinned), func(p pin) bool {
		return p.request != "" && os.Getenv(p.request) == ""
	})
}

// stampKubernetes returns the linker flags with the programs' version; kubectl version needs it.
func stampKubernetes(version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	var flags []string
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			fmt.Sprintf("-X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", p, version, p, parts[0], p,
				parts[1]))
	}
	return strings.Join(flags, " ")
}

// directory returns the directory of the pin's programs: its name has their version and a digest of the pin, so that a
// changed pin does not use old programs.
func (p pin) directory(pins, cache string) (string, error) {
	file, err := os.ReadFile(filepath.Join(pins, p.folder, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the pin of %s: %w", p.folder, err)
	}
	version, err := p.version(file)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(file)
	return filepath.Join(cache, fmt.Sprintf("%s-%s-%x", p.folder, version, digest[:4])), nil
}

// version returns the version of the pin's module in go.mod.
func (p pin) version(file []byte) (string, error) {
	for line := range strings.Lines(string(file)) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(words) >= 2 && words[0] == p.module && strings.HasPrefix(words[1], "v") {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("the pin of %s does not require %s", p.folder, p.module)
}

// absent returns the sorted names of the programs that dir lacks.
func (p pin) absent(dir string) []string {
	var names []string
	for name := range p.programs {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ensure builds the programs that the pin's directory lacks.
func (p pin) ensure(ctx context.Context, b builder) error {
	dir, err := p.directory(b.pins, b.cache)
	if err != nil {
		return err
	}
	absent := p.absent(dir)
	if len(absent) == 0 {
		return nil
	}
	file, err := os.ReadFile(filepath.Join(b.pins, p.folder, "go.mod"))
	if err != nil {
		return fmt.Errorf("read the pin of %s: %w", p.folder, err)
	}
	version, err := p.version(file)
	if err != nil {
		return err
	}
	j := job{folder: p.folder, version: version, dir: dir, outputs: map[string]string{}}
	if p.stamp != nil {
		j.flags = p.stamp(version)
	}
	for _, name := range absent {
		j.packages = append(j.packages, p.programs[name])
		j.outputs[output(p.programs[name])] = name
	}
	return b.build(ctx, j)
}

// output returns go build's name of a package's program: the last path element that is not a major version.
func output(pkg string) string {
	base := path.Base(pkg)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		return path.Base(path.Dir(pkg))
	}
	return base
}
