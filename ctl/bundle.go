package ctl

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// budgetRequests is how many requests without an answer the whole command waits for.
const budgetRequests = 3

// maxPart and maxLog limit a file of the archive; a larger file is cut, and errors.txt says so.
const (
	maxPart = 32 << 20
	maxLog  = 2 << 20
)

func bundleCommand(c *client) *cobra.Command {
	var file string
	var logs []string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Writes a support archive of this node: state, history, objects, counters, logs, machine; it contains no secrets",
		Example: `  weftctl bundle
  weftctl bundle --write /tmp/node1.tar.gz --log /var/log/weft-agent.log
  kubectl weft bundle --node node1 --write node1.tar.gz`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				file = "weft-bundle-" + c.now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			// The parts that a hung agent cannot delay are the first ones.
			parts := slices.Concat(localParts(c.agent, logs), agentParts(c.agent))
			b := &bundle{
				progress: cmd.ErrOrStderr(),
				now:      c.now(),
				budget:   budgetRequests * c.agent.timeout,
				parts:    parts,
			}
			if file == standardOutput {
				return errors.Join(b.writeTo(cmd.Context(), c.out), b.incomplete())
			}
			if err := b.write(cmd.Context(), file); err != nil {
				return err
			}
			written := writtenBundle{Errors: append([]string{}, b.errors...), File: file, Files: b.names}
			err := c.show(written, func() {
				c.printf("%s: %s, %s; not encrypted, readable by its owner only\n", file,
					counted(len(b.names), "file"),
					counted(len(b.errors), "error"))
			})
			return errors.Join(err, b.incomplete())
		},
	}
	cmd.Flags().StringVarP(&file, "write", "w", "",
		"file to write, which must not exist; - is the standard output (default weft-bundle-TIME.tar.gz)")
	cmd.Flags().StringArrayVar(&logs, "log", nil, "file with a log of the agent, whose end is added; may be repeated")
	return cmd
}

// writtenBundle is the result of bundle.
type writtenBundle struct {
	Errors []string `json:"errors"`
	File   string   `json:"file"`
	Files  []string `json:"files"` // in the archive
}

// part is one file of the archive.
type part struct {
	name string
	read func(context.Context) ([]byte, error) // content and error may both be set: the content is incomplete
}

// bundle is an archive that is being written.
type bundle struct {
	progress io.Writer
	now      time.Time
	budget   time.Duration // of all requests to the agent
	parts    []part
	names    []string
	errors   []string // failed parts, with the reason
}

// incomplete returns an error if a part is missing or cut.
func (b *bundle) incomplete() error {
	if len(b.errors) == 0 {
		return nil
	}
	return fmt.Errorf("the archive is incomplete: %s of %s; errors.txt in it lists them",
		counted(len(b.errors), "error"), counted(len(b.parts), "part"))
}

// standardOutput is the name of the standard output in --write.
const standardOutput = "-"

// write creates the archive as a file that only its owner can read.
func (b *bundle) write(ctx context.Context, path string) error {
	f, err := createFile(path, false)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	err = b.writeTo(ctx, f)
	return errors.Join(err, f.finish(err == nil))
}

// writeTo writes the archive. A failed part is recorded in errors.txt and does not stop it.
func (b *bundle) writeTo(ctx context.Context, out io.Writer) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	limited, cancel := context.WithTimeoutCause(ctx, b.budget,
		fmt.Errorf("the whole command has taken %s; set a longer --timeout", b.budget))
	defer cancel()
	for _, p := range b.parts {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
		if err := b.add(archive, p.name, b.contentOf(limited, p)); err != nil {
			return err
		}
	}
	text := "no errors\n"
	for i, e := range b.errors {
		if i == 0 {
			text = ""
		}
		text += e + "\n"
	}
	if err := b.add(archive, "errors.txt", []byte(text)); err != nil {
		return err
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// contentOf reads a part and prints a line of progress.
func (b *bundle) contentOf(ctx context.Context, p part) []byte {
	content, err := p.read(ctx)
	if len(content) > maxPart {
		content = content[:maxPart]
		err = errors.Join(err, fmt.Errorf("cut at %d MiB", maxPart>>20))
	}
	result := fmt.Sprintf("%d bytes", len(content))
	if err != nil {
		b.errors = append(b.errors, p.name+": "+oneLine(err.Error()))
		result = "error: " + oneLine(err.Error())
	}
	fmt.Fprintf(b.progress, "%-20s %s\n", p.name, result)
	return content
}

func (b *bundle) add(archive *tar.Writer, name string, content []byte) error {
	header := &tar.Header{
		Name:     "weft-bundle/" + name,
		Mode:     0o600,
		Size:     int64(len(content)),
		ModTime:  b.now,
		Typeflag: tar.TypeReg,
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	b.names = append(b.names, name)
	return nil
}

// indented returns a value as an indented JSON document.
func indented(v any) ([]byte, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return append(raw, '\n'), nil
}
