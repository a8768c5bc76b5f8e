package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/privatedir"
	"github.com/weftnet/weft/wire"
)

// disk creates the directories that allocations share, and has lost files of allocations recreated.
type disk struct {
	layout    *layout
	table     *table
	loop      doer
	claimable bool // claims get devices
	log       *slog.Logger
}

// prepare creates the shared directories: the parents of the allocations and the directory of device information. They
// are no scheduler objects, because the scheduler deletes a directory with its content, and third-party files may be in
// it.
func (d *disk) prepare() error {
	if err := os.MkdirAll(d.layout.directories.DeviceInfo, 0o755); err != nil {
		return fmt.Errorf("directory of device information: %w", err)
	}
	if d.claimable || len(d.table.claimed()) > 0 {
		if err := os.MkdirAll(d.layout.directories.CDI, 0o755); err != nil {
			return fmt.Errorf("directory of CDI files: %w", err)
		}
	}
	roots := []string{d.layout.directories.Root}
	for _, a := range d.table.inOrder() {
		roots = append(roots, filepath.Dir(a.Directory))
	}
	slices.Sort(roots)
	for _, root := range slices.Compact(roots) {
		if err := secureRoot(root); err != nil {
			return fmt.Errorf("directory of memifs: %w", err)
		}
	}
	return nil
}

// secureRoot creates a directory that only root may enter, or restricts an existing one that has no foreign files.
func secureRoot(root string) error {
	if err := refuseForeign(root); err != nil {
		return err
	}
	return privatedir.Make(root)
}

// refuseForeign rejects a directory that other users may enter and that has files that Weft did not make.
func refuseForeign(root string) error {
	info, err := os.Lstat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir() || info.Mode().Perm() == 0o700:
		return nil // privatedir.Make decides
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ours := allocationOf(e); !ours {
			return fmt.Errorf(
				"%s is open to other users (%s) and contains the foreign file %s: configure a directory that only Weft uses",
				root, info.Mode().Perm(), e.Name())
		}
	}
	return nil
}

// ensure recreates the files of the allocations if one of them is lost.
func (d *disk) ensure(ctx context.Context, allocations []*allocation) error {
	lost, err := d.lost(slices.Concat(allocations, d.table.predecessors(allocations)))
	if lost == "" || err != nil {
		return err
	}
	d.log.Warn("file of an allocation is lost, recreating it", "file", lost)
	err = d.prepare()
	if err == nil {
		_, err = d.loop.Do(ctx, eventloop.Resynchronize{
			Kind:   eventloop.Downstream,
			Reason: "file of an allocation is lost",
		})
	}
	lost, wrong := d.lost(allocations)
	if lost != "" {
		if err == nil {
			err = errors.New("it was removed again")
		}
		return fmt.Errorf("%s is lost and could not be recreated: %w", lost, err)
	}
	return wrong
}

// lost returns the first file that is missing, or that is no directory but should be one; "" if all files are there.
func (d *disk) lost(allocations []*allocation) (string, error) {
	for _, a := range allocations {
		files, err := d.layout.files(a)
		if err != nil {
			return "", err
		}
		for _, f := range files {
			info, err := os.Lstat(f.path)
			isUseless := f.value.Type == wire.Directory && (err != nil || !info.IsDir())
			if isUseless || errors.Is(err, fs.ErrNotExist) {
				return f.path, nil
			}
		}
	}
	return "", nil
}

// allocationIDs returns the ids of the allocations that have a directory or a record.
func allocationIDs(entries []fs.DirEntry) []string {
	var ids []string
	for _, e := range entries {
		if id, ours := allocationOf(e); ours {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// allocationOf returns the id of the allocation if e is its directory or record.
func allocationOf(e fs.DirEntry) (id string, ours bool) {
	id, isRecord := strings.CutSuffix(e.Name(), ".json")
	return id, isRandomText(id, idLength) && e.IsDir() != isRecord
}
