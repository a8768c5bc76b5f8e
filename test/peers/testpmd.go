package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// testpmdPackage is the Debian package with testpmd.
const testpmdPackage = "dpdk-dev"

// drivers are the drivers that testpmd needs for a memif without hardware.
var drivers = []string{"mempool_ring", "bus_vdev", "net_memif"}

// Testpmd finds DPDK's testpmd with its memif driver in WEFT_DPDK_DIR, in PATH, or in the cache. Its own arguments
// follow those of DPDK's environment abstraction layer, after "--".
func Testpmd() (Program, error) {
	if mayBeInstalled() {
		if root := os.Getenv(DPDKVariable); root != "" {
			if p, err := unpackedTestpmd(root); err == nil {
				return p, nil
			}
		}
		if path, err := exec.LookPath("dpdk-testpmd"); err == nil &&
			(!isDistributions(path) || len(driver("/", "net_memif")) > 0) {
			return Program{Path: path}, nil
		}
	}
	if root := unpackedRoot("dpdk"); root != "" {
		return unpackedTestpmd(root)
	}
	return Program{}, fmt.Errorf("dpdk-testpmd with its memif driver (Debian: dpdk-dev, librte-net-memif23): %w",
		ErrNone)
}

// isDistributions reports whether the drivers of a program are at the distribution's place.
func isDistributions(path string) bool {
	return filepath.Dir(path) == "/usr/bin" || filepath.Dir(path) == "/bin"
}

// unpackedTestpmd finds testpmd below root, with explicit paths of its drivers.
func unpackedTestpmd(root string) (Program, error) {
	for _, path := range []string{filepath.Join(root, "dpdk-testpmd"), filepath.Join(root, "usr/bin/dpdk-testpmd")} {
		if !isProgram(path) {
			continue
		}
		p := Program{
			Path: path,
			Environment: []string{
				"LD_LIBRARY_PATH=" +
					strings.Join(append(libraries(root), filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...), ":"),
			},
		}
		for _, name := range drivers {
			found := driver(root, name)
			if len(found) == 0 {
				return Program{}, fmt.Errorf("DPDK's driver %s is missing in %s", name, root)
			}
			p.Arguments = append(p.Arguments, "-d", found[0])
		}
		return p, nil
	}
	return Program{}, fmt.Errorf("dpdk-testpmd is missing in %s", root)
}

// driver finds a DPDK driver below root.
func driver(root, name string) []string {
	// the pattern is well formed
	found, _ := filepath.Glob(filepath.Join(root, "usr/lib/*/dpdk/pmds-*", "librte_"+name+".so*"))
	return found
}

// testpmdPackages returns the packages of testpmd, its libraries, and the drivers of the same release, without
// development packages.
func testpmdPackages(ctx context.Context, a *apt) ([]string, error) {
	needed, err := a.depends(ctx, testpmdPackage)
	if err != nil {
		return nil, err
	}
	needed = slices.DeleteFunc(needed, func(name string) bool {
		return strings.HasSuffix(name, "-dev") || strings.HasPrefix(name, "python")
	})
	for _, name := range needed {
		if release, ok := strings.CutPrefix(name, "librte-eal"); ok {
			return append(needed, "librte-net-memif"+release), nil
		}
	}
	return nil, fmt.Errorf("package %s has no DPDK release", testpmdPackage)
}

// separate prevents DPDK below root from loading the machine's drivers beside its own: duplicates make it exit. The
// path of the drivers is compiled into the library.
func separate(root string) error {
	var errs []error
	for _, dir := range libraries(root) {
		found, _ := filepath.Glob(filepath.Join(dir, "librte_eal.so*")) // the pattern is well formed
		for _, path := range found {
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
				errs = append(errs, replaceIn(path, "/dpdk/pmds-", "/dpdk/none-"))
			}
		}
	}
	return errors.Join(errs...)
}

func replaceIn(path, old, by string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("change DPDK's driver path: %w", err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(content, []byte(old), []byte(by)), 0o644); err != nil {
		return fmt.Errorf("change DPDK's driver path: %w", err)
	}
	return nil
}
