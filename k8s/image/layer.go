package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// where the programs are in the image, and which there are.
const where = "usr/local/bin/"

var names = []string{"weft-agent", "weft-cni", "weft-vswitch", "weftctl"}

// directories are there so that runtimes find what they mount upon where the image is read-only.
var directories = []string{
	"dev/", "etc/", "etc/cni/", "etc/cni/net.d/", "etc/weft/", "opt/", "opt/cni/", "opt/cni/bin/", "proc/", "run/", "run/netns/",
	"run/weft/", "sys/", "tmp/", "usr/", "usr/local/", where, "var/", "var/lib/", "var/lib/kubelet/", "var/lib/weft/", "var/log/",
}

// links are symbolic: path -> target. Runtimes name network namespaces by /var/run.
var links = []struct{ path, target string }{
	{where + "weft-ipam", "weft-cni"},
	{"var/run", "../run"},
}

// machines are the architectures, as ELF knows them.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// programs is the image's only layer, as a tar.
func programs(from, arch string) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range directories {
		if err := w.WriteHeader(header(tar.TypeDir, dir, 0o755)); err != nil {
			return nil, fmt.Errorf("pack %s: %w", dir, err)
		}
	}
	for _, name := range names {
		if err := pack(w, filepath.Join(from, name), arch); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	for _, l := range links {
		h := header(tar.TypeSymlink, l.path, 0o777)
		h.Linkname = l.target
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", l.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the programs: %w", err)
	}
	return layer.Bytes(), nil
}

func pack(w *tar.Writer, file, arch string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := runsIn(content, arch); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	h := header(tar.TypeReg, where+filepath.Base(file), 0o755)
	h.Size = int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// runsIn refuses what would not run in an image that holds nothing else.
func runsIn(content []byte, arch string) error {
	program, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("no program for linux: %w", err)
	}
	defer program.Close()
	if program.Machine != machines[arch] {
		return fmt.Errorf("built for %s, not for %s: set GOARCH or -arch", program.Machine, arch)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("not static: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// header is that of an entry which says nothing of when and by whom it was packed.
func header(kind byte, name string, mode int64) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
}
