// Command release packs programs, container image, Helm chart and the list of their modules (SBOM) of a release, and
// verifies a finished release. The same programs and sources have the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/weftnet/weft/tools/oci"
)

// Exit codes of all programs of Weft.
const (
	exitFailed = 1
	exitUsage  = 2
)

// onlyChart is the value of -only that packs only the chart.
const onlyChart = "chart"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	from, chart, licence, out string
	version, repository, only string
	seconds                   int64
	finished                  bool
}

func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.from, "from", "", "directory with the programs in a subdirectory for each architecture")
	flags.StringVar(&o.chart, "chart", "../k8s/chart/weft", "directory of the chart")
	flags.StringVar(&o.licence, "licence", "../LICENSE", "file of the licence")
	flags.StringVar(&o.out, "o", "", "output directory")
	flags.StringVar(&o.version, "version", "", "version, such as v1.2.3")
	flags.StringVar(&o.repository, "repository", "localhost/weft", "name of the image without its tag")
	flags.Int64Var(&o.seconds, "time", 0, "time of the sources, in seconds since 1970")
	flags.StringVar(&o.only, "only", "", "chart: pack the chart only")
	flags.BoolVar(&o.finished, "verify", false, "verify the finished release in the output directory")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	if err := o.validate(flags.Args()); err != nil {
		_, _ = fmt.Fprintln(stderr, "release:", err)
		return exitUsage
	}
	if err := o.do(stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "release:", err)
		return exitFailed
	}
	return 0
}

// do packs or verifies the release.
func (o options) do(stdout io.Writer) error {
	if o.finished {
		return o.verify()
	}
	files, err := o.files()
	if err != nil {
		return err
	}
	return write(o.out, files, stdout)
}

func (o options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case o.out == "":
		return errors.New("-o: the output directory is missing")
	case o.only != "" && o.only != onlyChart:
		return fmt.Errorf("-only %q is not %s", o.only, onlyChart)
	case !strings.HasPrefix(o.version, "v"):
		return fmt.Errorf("-version %q is not a version like v1.2.3", o.version)
	case o.finished && (o.from != "" || o.only != ""):
		return errors.New("-verify packs nothing: omit -from and -only")
	case o.from == "" && o.only == "" && !o.finished:
		return errors.New("-from: the directory of the programs is missing")
	}
	return nil
}

// file is a file of the release.
type file struct {
	name    string
	content []byte
}

// files returns all files of the release.
func (o options) files() ([]file, error) {
	chart, err := packChart(o.chart, o.version, o.repository)
	if err != nil {
		return nil, fmt.Errorf("pack the chart: %w", err)
	}
	files := []file{{"weft-" + chart.version + ".tgz", chart.archive}}
	if o.only == onlyChart {
		return files, nil
	}
	artefact, err := chart.artefact(o.version)
	if err != nil {
		return nil, fmt.Errorf("pack the chart for registries: %w", err)
	}
	image, err := o.image()
	if err != nil {
		return nil, fmt.Errorf("pack the image: %w", err)
	}
	modules, err := o.sbom()
	if err != nil {
		return nil, fmt.Errorf("list the modules: %w", err)
	}
	files = append(files, file{"weft-chart_" + o.version + ".oci.tar", artefact}, file{
		"weft-image_" + o.version + ".oci.tar", image,
	},
		file{"weft_" + o.version + ".cdx.json", modules})
	for arch := range oci.Machines {
		programs, err := o.programs(arch)
		if err != nil {
			return nil, fmt.Errorf("pack the programs for %s: %w", arch, err)
		}
		files = append(files, file{"weft_" + o.version + "_linux_" + arch + ".tar.gz", programs})
	}
	return files, nil
}

// image returns an archive of an OCI layout with the image for all architectures.
func (o options) image() ([]byte, error) {
	images := map[string]v1.Image{}
	for arch := range oci.Machines {
		layer, err := oci.Layer(filepath.Join(o.from, arch), arch)
		if err != nil {
			return nil, err
		}
		if images[arch], err = oci.Image(layer, arch, o.version); err != nil {
			return nil, err
		}
	}
	return oci.Archive(func(path layout.Path) error {
		return path.AppendIndex(oci.Index(images), oci.Named(o.repository+":"+o.version))
	})
}

// time is the time of the sources.
func (o options) time() time.Time { return time.Unix(o.seconds, 0).UTC() }

// write writes files and prints their names.
func write(dir string, files []file, stdout io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.content, 0o644); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(stdout, filepath.Join(dir, f.name))
	}
	return nil
}
