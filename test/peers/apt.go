package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// apt queries the distribution's package manager; all files that it writes are in dir.
type apt struct {
	dir   string
	lists string // directory of the lists of packages; "" = the machine's
}

// aptIsThere returns why packages cannot be fetched.
func aptIsThere() error {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("not installed, and %s is missing", tool)
		}
	}
	return nil
}

// configuration makes apt assume that nothing is installed, so that its answers are complete on any machine, and
// disables hooks, which could change the machine.
const configuration = `#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
Dir::State::status %q;
Dir::State::extended_states %q;
Dir::Cache %q;
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Debug::NoLocking "true";
Acquire::Retries "0";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
Acquire::Languages "none";
`

func (a *apt) configure() error {
	dirs := []string{a.path("apt/archives/partial"), a.path("archives")}
	if a.lists != "" {
		dirs = append(dirs, filepath.Join(a.lists, "partial"))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the cache: %w", err)
		}
	}
	text := fmt.Sprintf(configuration, a.path("status"), a.path("extended_states"), a.path("apt"))
	if a.lists != "" {
		text += fmt.Sprintf("Dir::State::lists %q;\n", a.lists)
	}
	if err := errors.Join(os.WriteFile(a.path("status"), nil, 0o644),
		os.WriteFile(a.path("apt.conf"), []byte(text), 0o644)); err != nil {
		return fmt.Errorf("configure apt: %w", err)
	}
	return nil
}

func (a *apt) path(name string) string { return filepath.Join(a.dir, name) }

// update downloads the lists of packages.
func (a *apt) update(ctx context.Context) error {
	if err := a.configure(); err != nil {
		return err
	}
	_, err := a.run(ctx, "apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
	return err
}

// depends returns the dependencies of a package.
func (a *apt) depends(ctx context.Context, name string) ([]string, error) {
	output, err := a.run(ctx, "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(output) {
		if list, ok := strings.CutPrefix(line, "Depends: "); ok {
			return parseDepends(list), nil
		}
	}
	return nil, fmt.Errorf("no dependencies of package %s found", name)
}

// parseDepends returns the first name of each alternative.
func parseDepends(list string) []string {
	var names []string
	for item := range strings.SplitSeq(list, ",") {
		if words := strings.Fields(item); len(words) > 0 {
			name, _, _ := strings.Cut(words[0], ":")
			names = append(names, name)
		}
	}
	return names
}

// closure returns the packages with their libraries, without other programs that a complete system would have.
func (a *apt) closure(ctx context.Context, asked []string) ([]string, error) {
	output, err := a.run(ctx, "apt-get", append([]string{"-s", "install"}, asked...)...)
	if err != nil {
		return nil, err
	}
	return parseClosure(output, asked), nil
}

// machines are libraries that belong to the machine's dynamic loader and must be the machine's own.
var machines = map[string]bool{"libc6": true, "libgcc-s1": true, "libc-bin": true}

func parseClosure(output string, asked []string) []string {
	wanted := map[string]bool{}
	for _, name := range asked {
		wanted[name] = true
	}
	var names []string
	for line := range strings.Lines(output) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "Inst" {
			continue
		}
		name, _, _ := strings.Cut(words[1], ":")
		isLibrary := strings.HasPrefix(name, "lib") && !strings.HasSuffix(name, "-perl") &&
			!strings.HasPrefix(name, "libperl")
		if !machines[name] && (wanted[name] || isLibrary) {
			names = append(names, words[1])
		}
	}
	return names
}

// download downloads packages and returns their paths.
func (a *apt) download(ctx context.Context, packages []string) ([]string, error) {
	if len(packages) == 0 {
		return nil, errors.New("apt-get lists no packages")
	}
	if _, err := a.run(ctx, "apt-get", append([]string{"-qq", "download"}, packages...)...); err != nil {
		return nil, err
	}
	archives, err := filepath.Glob(filepath.Join(a.path("archives"), "*.deb"))
	if err != nil || len(archives) < len(packages) {
		return nil, fmt.Errorf("apt-get downloaded %d of %d packages: %w", len(archives), len(packages), err)
	}
	return archives, nil
}

func (a *apt) unpack(ctx context.Context, archives []string, root string) error {
	for _, archive := range archives {
		if _, err := a.run(ctx, "dpkg-deb", "-x", archive, root); err != nil {
			return err
		}
	}
	return nil
}

// clean removes files that are not needed after the packages are unpacked.
func (a *apt) clean() error {
	return errors.Join(os.RemoveAll(a.path("archives")), os.RemoveAll(a.path("apt")))
}

// run runs a command in the cache; its error has the last line of the command's output.
func (a *apt) run(ctx context.Context, name string, arguments ...string) (string, error) {
	var out, output bytes.Buffer
	if name != "dpkg-deb" {
		// Read last, so it takes precedence over the machine's configuration.
		arguments = append([]string{"-c", a.path("apt.conf")}, arguments...)
	}
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = a.path("archives")
	cmd.Stdout = &out
	cmd.Stderr = &output
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	// Its children do the downloads.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, complaint(output.String()))
	}
	return out.String(), nil
}

// complaint returns the first error in a program's output, or its last line.
func complaint(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "E: ") {
			return line
		}
	}
	return lines[len(lines)-1]
}
