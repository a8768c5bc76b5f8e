package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// mountpoints are directories that a runtime mounts over.
var mountpoints = []string{"/dev", "/etc", "/proc", "/sys", "/tmp", "/var/run"}

// layer returns the tar of the image's files and their directories.
func (i Image) layer() ([]byte, error) {
	var content bytes.Buffer
	l := &layerWriter{w: tar.NewWriter(&content), made: map[string]bool{}}
	for _, dir := range mountpoints {
		if err := l.directory(dir); err != nil {
			return nil, err
		}
	}
	for _, inside := range slices.Sorted(maps.Keys(i.Files)) {
		if err := l.file(inside, i.Files[inside]); err != nil {
			return nil, err
		}
	}
	for _, inside := range slices.Sorted(maps.Keys(i.Links)) {
		if err := l.link(inside, i.Links[inside]); err != nil {
			return nil, err
		}
	}
	if err := l.w.Close(); err != nil {
		return nil, fmt.Errorf("end the layer: %w", err)
	}
	return content.Bytes(), nil
}

type layerWriter struct {
	w    *tar.Writer
	made map[string]bool
}

// directory writes dir and its parents, each once.
func (l *layerWriter) directory(dir string) error {
	if dir == "/" || dir == "." || l.made[dir] {
		return nil
	}
	if err := l.directory(path.Dir(dir)); err != nil {
		return err
	}
	l.made[dir] = true
	mode := int64(0o755)
	if dir == "/tmp" {
		mode = 0o1777
	}
	if err := l.w.WriteHeader(&tar.Header{
		Name:     strings.TrimPrefix(dir, "/") + "/",
		Typeflag: tar.TypeDir,
		Mode:     mode,
	}); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

func (l *layerWriter) file(inside, here string) error {
	if err := l.directory(path.Dir(inside)); err != nil {
		return err
	}
	content, err := os.ReadFile(here)
	if err != nil {
		return fmt.Errorf("read what becomes %s: %w", inside, err)
	}
	info, err := os.Stat(here)
	if err != nil {
		return fmt.Errorf("read what becomes %s: %w", inside, err)
	}
	header := &tar.Header{
		Name:     strings.TrimPrefix(inside, "/"),
		Typeflag: tar.TypeReg,
		Mode:     int64(info.Mode().Perm()),
		Size:     int64(len(content)),
	}
	if err := l.w.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", inside, err)
	}
	if _, err := l.w.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", inside, err)
	}
	return nil
}

func (l *layerWriter) link(inside, target string) error {
	if err := l.directory(path.Dir(inside)); err != nil {
		return err
	}
	if err := l.w.WriteHeader(&tar.Header{
		Name:     strings.TrimPrefix(inside, "/"),
		Typeflag: tar.TypeSymlink,
		Linkname: target,
		Mode:     0o777,
	}); err != nil {
		return fmt.Errorf("write %s: %w", inside, err)
	}
	return nil
}
