package programs

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// packages are programs of the distribution, which are not in Go or need a C library: program -> package.
var packages = map[string]string{"runc": "runc", "nft": "nftables"}

// system are directories that the PATH of an unprivileged user may lack.
var system = []string{"/usr/sbin", "/sbin"}

// addDebian adds the distribution's programs to the set: installed ones, or else those unpacked in the cache.
func (s *Set) addDebian(cache string) error {
	var absent []string
	for name, pkg := range packages {
		path, unpacked := findDebian(name, cache)
		if path == "" {
			absent = append(absent, pkg)
			continue
		}
		s.paths[name] = path
		s.search = append(s.search, filepath.Dir(path))
		if unpacked {
			s.libraries = libraries(cache)
		}
	}
	if len(absent) > 0 {
		slices.Sort(absent)
		return fmt.Errorf("missing packages: %s: install them", strings.Join(absent, ", "))
	}
	return nil
}

// findDebian searches a program on the machine, then in the unpacked packages.
func findDebian(name, cache string) (path string, unpacked bool) {
	if path, err := exec.LookPath(name); err == nil {
		return path, false
	}
	root := unpackedRoot(cache)
	for _, dir := range append(slices.Clone(system), filepath.Join(root, "usr/sbin"), filepath.Join(root, "usr/bin")) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, strings.HasPrefix(path, root)
		}
	}
	return "", false
}

func unpackedRoot(cache string) string { return filepath.Join(cache, "debian", "root") }

// libraries returns the directories of shared libraries in the unpacked packages.
func libraries(cache string) []string {
	found, _ := filepath.Glob(filepath.Join(unpackedRoot(cache), "usr/lib/*-linux-gnu*")) // the pattern is well formed
	return found
}

// ensureDebian unpacks missing packages with their missing dependencies into the cache; it installs nothing.
func ensureDebian(ctx context.Context, cache string, progress io.Writer) error {
	needed := (&Set{paths: map[string]string{}}).addDebian(cache)
	if needed == nil {
		return nil
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return needed
		}
	}
	fmt.Fprintln(progress, "e2e: unpacking packages of the distribution into the cache")
	a := apt{dir: filepath.Join(cache, "debian")}
	if err := a.download(ctx, slices.Collect(maps.Values(packages))...); err != nil {
		return fmt.Errorf("%w (apt-get: %w)", needed, err)
	}
	return a.unpack(ctx)
}

// Guests are packages of the distribution with programs that a test runs on a node beside Weft.
var Guests = []string{"dbus-daemon", "firewalld", "iptables", "keepalived", "systemd"}

// EnsureGuests downloads missing guests with their missing dependencies into the cache; it installs nothing.
func EnsureGuests(ctx context.Context, progress io.Writer) error {
	cache, err := Cache()
	if err != nil {
		return err
	}
	for _, name := range Guests {
		if _, err := Archives(name); err == nil {
			continue
		}
		fmt.Fprintf(progress, "e2e: downloading the package %s into the cache\n", name)
		a := apt{dir: guestRoot(cache, name)}
		if err := a.download(ctx, name); err != nil {
			return fmt.Errorf("package %s: %w", name, err)
		}
		if err := os.WriteFile(a.complete(), nil, 0o644); err != nil {
			return fmt.Errorf("package %s: %w", name, err)
		}
	}
	return nil
}

// Archives returns the files of a guest and of its dependencies, without those that the machine has installed.
func Archives(guest string) ([]string, error) {
	cache, err := Cache()
	if err != nil {
		return nil, err
	}
	a := apt{dir: guestRoot(cache, guest)}
	if _, err := os.Stat(a.complete()); err != nil {
		return nil, fmt.Errorf("package %s is not in the cache: %w", guest, err)
	}
	return a.archives()
}

func guestRoot(cache, name string) string { return filepath.Join(cache, "debian", "guests", name) }

// apt downloads packages with its own lists and archives, so that the machine's do not change.
type apt struct{ dir string }

func (a apt) download(ctx context.Context, wanted ...string) error {
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	options := []string{
		"-qq", "-y", "--no-install-recommends", "-o", "APT::Sandbox::User=root",
		"-o", "Dir::State::lists=" + filepath.Join(a.dir, "lists"), "-o",
		"Dir::Cache::archives=" + filepath.Join(a.dir, "archives"),
		"-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
	}
	if err := run(ctx, "apt-get", append(options, "update")...); err != nil {
		return err
	}
	return run(ctx, "apt-get", append(append(options, "--download-only", "install"), wanted...)...)
}

// complete is a file that exists once all packages are downloaded.
func (a apt) complete() string { return filepath.Join(a.dir, "complete") }

func (a apt) archives() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(a.dir, "archives", "*.deb"))
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	return files, nil
}

func (a apt) unpack(ctx context.Context) error {
	archives, err := a.archives()
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := run(ctx, "dpkg-deb", "-x", archive, filepath.Join(a.dir, "root")); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command; its error has the last line of the output.
func run(ctx context.Context, name string, arguments ...string) error {
	if output, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, lastLine(string(output)))
	}
	return nil
}
