// Command image builds a container image with the programs, without a daemon: a tar of an OCI layout, which `ctr images
// import` and other tools read. The same programs have the same image.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/weftnet/weft/tools/oci"
)

// Exit codes of all programs of Weft.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	from, out, name, arch string
}

func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.from, "from", "bin", "directory of the programs")
	flags.StringVar(&o.out, "o", "", "output file")
	flags.StringVar(&o.name, "name", "", "name of the image with its tag")
	flags.StringVar(&o.arch, "arch", "amd64", "architecture of the programs: amd64 or arm64")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	if err := o.validate(flags.Args()); err != nil {
		_, _ = fmt.Fprintln(stderr, "image:", err)
		return exitUsage
	}
	digest, err := o.write()
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "image:", err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(stdout, "%s linux/%s %s %s\n", o.out, o.arch, o.name, digest)
	return 0
}

func (o options) validate(rest []string) error {
	slash := strings.LastIndexByte(o.name, '/')
	tag := o.name[slash+1:]
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case o.out == "":
		return errors.New("-o: the output file is missing")
	case slash < 1 || !strings.Contains(strings.Trim(tag, ":"), ":"):
		return fmt.Errorf("-name %q is not a full name like localhost/weft:v1", o.name)
	case oci.Machines[o.arch] == 0:
		return fmt.Errorf("-arch %q is neither amd64 nor arm64", o.arch)
	}
	return nil
}

// write writes the archive atomically and returns the digest of the image's manifest.
func (o options) write() (digest string, err error) {
	layer, err := oci.Layer(o.from, o.arch)
	if err != nil {
		return "", err
	}
	image, err := oci.Image(layer, o.arch, o.name[strings.LastIndexByte(o.name, ':')+1:])
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", o.name, err)
	}
	hash, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", o.name, err)
	}
	archive, err := oci.Archive(func(path layout.Path) error {
		return path.AppendImage(image, oci.Named(o.name),
			layout.WithPlatform(v1.Platform{Architecture: o.arch, OS: "linux"}))
	})
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", o.name, err)
	}
	draft := filepath.Join(filepath.Dir(o.out), "."+filepath.Base(o.out)+".tmp")
	if err := os.WriteFile(draft, archive, 0o644); err != nil {
		return "", fmt.Errorf("write the archive: %w", err)
	}
	if err := os.Rename(draft, o.out); err != nil {
		return "", fmt.Errorf("write the archive: %w", err)
	}
	return hash.String(), nil
}
