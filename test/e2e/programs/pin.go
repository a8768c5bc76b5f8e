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

// pin is a Go module that only says which version of whose programs is used; it lies in a folder of its own below pins.
type pin struct {
	folder   string
	module   string            // its version is the programs' version
	programs map[string]string // name -> package
	stamp    func(version string) string
}

const (
	kubernetes = "k8s.io/kubernetes"
	containerd = "github.com/containerd/containerd/v2"
	plugins    = "github.com/containernetworking/plugins"
)

// pinned are built in this order: the small ones first, so that what cannot work fails early.
var pinned = []pin{
	{folder: "plugins", module: plugins, programs: map[string]string{
		"bridge":     plugins + "/plugins/main/bridge",
		"host-local": plugins + "/plugins/ipam/host-local",
		"loopback":   plugins + "/plugins/main/loopback",
		"portmap":    plugins + "/plugins/meta/portmap",
	}},
	{folder: "etcd", module: "go.etcd.io/etcd/server/v3", programs: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"}},
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

// stampKubernetes are the linker's flags that tell the programs their version; kubectl version fails without.
func stampKubernetes(version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	var flags []string
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, fmt.Sprintf("-X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", p, version, p, parts[0], p, parts[1]))
	}
	return strings.Join(flags, " ")
}

// directory is where the programs of the pin go: its name holds their version and a digest of the pin, so that a new pin
// never meets old programs.
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

// version is what the go.mod requires of the pin's module.
func (p pin) version(file []byte) (string, error) {
	for line := range strings.Lines(string(file)) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(words) >= 2 && words[0] == p.module && strings.HasPrefix(words[1], "v") {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("the pin of %s does not require %s", p.folder, p.module)
}

// absent are the names of the programs that dir lacks, sorted.
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

// output is how go build names the program of a package: by the last element that is no major version.
func output(pkg string) string {
	base := path.Base(pkg)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		return path.Base(path.Dir(pkg))
	}
	return base
}
