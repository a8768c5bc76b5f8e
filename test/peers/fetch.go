package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Found returns the available peers, by their names in WEFT_REQUIRE.
func Found() []string {
	var names []string
	for _, p := range all {
		if p.find() == nil {
			names = append(names, p.name)
		}
	}
	return names
}

// Fetch downloads missing peers from the distribution's packages if apt-get and dpkg exist. It installs nothing and
// does not need root. It writes a line to progress about each download, or about why there is none.
func Fetch(ctx context.Context, progress io.Writer) {
	missing := slices.DeleteFunc(slices.Clone(all), func(p peer) bool { return p.find() == nil })
	if len(missing) == 0 {
		return
	}
	cache, unlock, err := prepare(ctx)
	if err == nil {
		defer unlock()
	}
	f := fetcher{cache: cache, progress: progress}
	for _, p := range missing {
		cause := err
		if cause == nil {
			cause = f.fetch(ctx, p)
		}
		if cause != nil {
			fmt.Fprintf(progress, "peers: unavailable: %s: %v; tests that need it are skipped\n", p.what, cause)
		}
	}
}

// prepare locks the cache for peers, or returns why they cannot be fetched.
func prepare(ctx context.Context) (cache string, unlock func(), err error) {
	if os.Getenv(Variable) == Installed {
		return "", nil, fmt.Errorf("not installed, and %s=%s", Variable, Installed)
	}
	if err := aptIsThere(); err != nil {
		return "", nil, err
	}
	if cache, err = Cache(); err != nil {
		return "", nil, err
	}
	unlock, err = lock(ctx, cache)
	return cache, unlock, err
}

// fetcher fetches peers one by one.
type fetcher struct {
	cache    string
	progress io.Writer
	ownLists bool // use new lists of packages, because the machine's failed
}

func (f *fetcher) fetch(ctx context.Context, p peer) error {
	if p.find() == nil {
		return nil // another process fetched it
	}
	fmt.Fprintf(f.progress, "peers: unpacking %s from packages of the distribution into %s; nothing is installed\n",
		p.what, f.cache)
	if err := f.unpack(ctx, p); err != nil {
		if ctx.Err() != nil {
			return errors.New("timeout; a later run continues with what was downloaded")
		}
		return err
	}
	return p.find()
}

// unpack tries the machine's lists of packages, then new ones: the machine's may be missing, or too old.
func (f *fetcher) unpack(ctx context.Context, p peer) error {
	a := &apt{dir: filepath.Join(f.cache, p.name), lists: filepath.Join(f.cache, "lists")}
	if !f.ownLists {
		if p.unpackFrom(ctx, &apt{dir: a.dir}) == nil {
			return nil
		}
		if err := a.update(ctx); err != nil {
			return err
		}
		f.ownLists = true
	}
	return p.unpackFrom(ctx, a)
}

// unpackFrom unpacks into a temporary directory, so that root is always complete.
func (p peer) unpackFrom(ctx context.Context, a *apt) error {
	if err := a.configure(); err != nil {
		return err
	}
	packages, err := p.packages(ctx, a)
	if err != nil {
		return err
	}
	if packages, err = a.closure(ctx, packages); err != nil {
		return err
	}
	if p.name == "dpdk" {
		packages = append(packages, testpmdPackage)
	}
	archives, err := a.download(ctx, packages)
	if err != nil {
		return err
	}
	root := filepath.Join(a.dir, "root")
	made := root + ".new"
	if err := errors.Join(os.RemoveAll(made), os.RemoveAll(root)); err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	if err := a.unpack(ctx, archives, made); err != nil {
		return err
	}
	if err := errors.Join(wrapTables(made, root), separate(made)); err != nil {
		return err
	}
	return errors.Join(os.Rename(made, root), a.clean())
}

// lock waits until no other process fetches into dir.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock the cache: %w", err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another process holds %s: %w", f.Name(), ctx.Err()), f.Close())
		}
	}
}
