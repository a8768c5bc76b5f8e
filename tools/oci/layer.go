package oci

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// binDir is the directory of the programs in the image.
const binDir = "usr/local/bin/"

// Programs are the programs of Weft.
var Programs = []string{"weft-agent", "weft-cni", "weft-vswitch", "weftctl"}

// directories are the mount points and their parents: runtimes cannot create them in a read-only image.
var directories = []string{
	"dev/", "etc/", "etc/cni/", "etc/cni/net.d/", "etc/weft/", "opt/", "opt/cni/", "opt/cni/bin/", "proc/",
	"run/", "run/netns/",
	"run/weft/", "sys/", "tmp/", "usr/", "usr/local/", binDir, "var/", "var/lib/", "var/lib/kubelet/",
	"var/lib/weft/", "var/log/",
}

// links are the symbolic links. Runtimes pass paths of network namespaces in /var/run.
var links = []struct{ path, target string }{
	{binDir + "kubectl-weft", "weftctl"},
	{binDir + "weft-ipam", "weft-cni"},
	{"var/run", "../run"},
}

// Machines are the supported architectures with their ELF names.
var Machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Layer returns the only layer of the image, a tar with the programs of a directory.
func Layer(dir, arch string) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range directories {
		if err := w.WriteHeader(header(tar.TypeDir, d, 0o755)); err != nil {
			return nil, fmt.Errorf("pack %s: %w", d, err)
		}
	}
	for _, name := range Programs {
		if err := addProgram(w, filepath.Join(dir, name), arch); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	for _, l := range links {
		if err := AddLink(w, l.path, l.target); err != nil {
			return nil, fmt.Errorf("pack %s: %w", l.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the programs: %w", err)
	}
	return layer.Bytes(), nil
}

func addProgram(w *tar.Writer, file, arch string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := checkProgram(content, arch); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return AddFile(w, binDir+filepath.Base(file), 0o755, content)
}

// checkProgram rejects programs that do not run in an image without libraries.
func checkProgram(content []byte, arch string) error {
	program, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("not a linux program: %w", err)
	}
	defer program.Close()
	if program.Machine != Machines[arch] {
		return fmt.Errorf("built for %s, not for %s: set GOARCH or -arch", program.Machine, arch)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("not static: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
