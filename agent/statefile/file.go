// Package statefile stores the agent's durable state in a bbolt file. It moves a damaged file aside and rejects a file
// of a newer schema.
package statefile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// schemaVersion is the version of the layout. Open rejects newer versions.
const schemaVersion = 1

// Buckets of the state file.
const (
	BucketMeta         = "meta"
	BucketAttachments  = "attachments"
	BucketLeases       = "leases"
	BucketNetworks     = "networks"
	BucketDevices      = "devices"
	BucketCluster      = "cluster"
	BucketNodes        = "nodes"
	BucketBlocks       = "blocks"
	BucketPools        = "pools"
	BucketExternals    = "externals"
	BucketApplied      = "applied"
	BucketTransactions = "transactions"
	BucketQuarantine   = "quarantine"
	BucketChains       = "chains"
	BucketRules        = "rules"
	BucketLists        = "lists"
)

// KeyIncomplete is in the bucket meta of a new file until the file has all attachments of a previous one.
const KeyIncomplete = "owes"

// trialKey is in the bucket meta during a trial.
const trialKey = "trial"

var allBuckets = []string{
	BucketMeta, BucketAttachments, BucketLeases, BucketNetworks, BucketDevices, BucketCluster, BucketNodes,
	BucketBlocks, BucketPools,
	BucketExternals, BucketApplied, BucketTransactions, BucketQuarantine, BucketChains, BucketRules, BucketLists,
	eventloop.RecordsBucket,
}

// File is the state file. Only one agent at a time can have it open.
type File struct {
	db   *bbolt.DB
	path string
	// of capacity 1, held during a write: it marks the entries of buffers, and drops them at its end
	slot     chan struct{}
	buffers  []buffer
	restore  []former      // of abandoned writes that are not undone yet; belongs to the holder of slot
	buffered chan struct{} // has a token after an entry was buffered

	Journal      *Journal
	Transactions *Buffer[*kvscheduler.Record] // the last records of the scheduler's log

	OnSave func(took time.Duration) // called after each durable write
	OnFull func(err error)          // called after each failed write

	// Incomplete reports whether attachments may be missing: the file is new, or an entry cannot be read.
	Incomplete bool

	// Quarantined is the path to which Open moved a damaged file; "": the file was valid.
	Quarantined string
}

// Open opens or creates the state file. If another agent has the file open, Open waits until ctx ends. Open moves a
// damaged file aside and creates a new one. It rejects a file of a newer schema.
func Open(ctx context.Context, path string, log *slog.Logger) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	restrictDamaged(path, log)
	db, err := openValid(ctx, path, log)
	f := &File{db: db, path: path, OnSave: func(time.Duration) {}, OnFull: func(error) {},
		slot: make(chan struct{}, 1), buffered: make(chan struct{}, 1)}
	if isDamage(err) {
		f.Quarantined = fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000"))
		log.Error("state file is damaged, moved aside", "file", path, "to", f.Quarantined, "err", err)
		if err := os.Rename(path, f.Quarantined); err != nil {
			return nil, fmt.Errorf("move damaged state file aside: %w", err)
		}
		f.db, err = openValid(ctx, path, log)
	}
	if err != nil {
		return nil, err
	}
	if err := f.prepare(); err != nil {
		return nil, errors.Join(err, f.db.Close())
	}
	f.Journal = &Journal{db: f.db, Buffer: NewBuffer(f, journalEntries)}
	f.Transactions = NewBuffer(f, transactionEntries)
	return f, nil
}

// Close writes the buffers and closes the file.
func (f *File) Close() error {
	return errors.Join(f.Save(context.Background(), nil), f.db.Close())
}

// flushAfter is the maximum time between buffering an entry and writing it.
const flushAfter = 100 * time.Millisecond

// FlushSoon writes buffered entries after flushAfter if no Save has, until ctx ends. After a crash operators need the
// last transaction.
func (f *File) FlushSoon(ctx context.Context) error {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.buffered:
		}
		wait.Reset(flushAfter)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait.C:
		}
		if slices.ContainsFunc(f.buffers, func(b buffer) bool { return !b.isEmpty() }) {
			_ = f.Save(ctx, nil) // the condition "state" reports a failure; the entries stay buffered
		}
	}
}

const (
	// trialPages is the number of pages by which a trial extends the file: more than an event.
	trialPages = 16
	// maxTrial limits the size of a trial, in bytes.
	maxTrial = 4 << 20
)

// try writes an entry and deletes it. The entry needs more pages than are free in the file, so the write fails on a
// full disk.
func (f *File) try() error {
	stats := f.db.Stats()
	size := (stats.FreePageN + stats.PendingPageN + trialPages) * f.db.Info().PageSize
	write := func(value []byte) error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			if value == nil {
				return tx.Bucket([]byte(BucketMeta)).Delete([]byte(trialKey))
			}
			return tx.Bucket([]byte(BucketMeta)).Put([]byte(trialKey), value)
		})
	}
	if err := write(make([]byte, min(size, maxTrial))); err != nil {
		return err
	}
	return write(nil)
}

func put(tx *bbolt.Tx, v eventloop.Saved) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("save %s/%s: %w", v.Bucket, v.Key, err)
		}
	}()
	b := tx.Bucket([]byte(v.Bucket))
	if b == nil {
		return errors.New("no such bucket")
	}
	if v.Value == nil {
		return b.Delete([]byte(v.Key))
	}
	raw, err := encode(v.Value)
	if err != nil {
		return err
	}
	return b.Put([]byte(v.Key), raw)
}

// Load decodes the values of a bucket in the order of their keys. It logs and skips invalid entries, and sets
// Incomplete.
func Load[V any](f *File, bucket string, log *slog.Logger) ([]V, error) {
	var values []V
	err := f.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(k, raw []byte) error {
			var v V
			if err := decode(raw, &v); err != nil {
				log.Error("entry of the state file skipped", "bucket", bucket, "key", string(k), "err", err)
				f.Incomplete = true
				return nil
			}
			values = append(values, v)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read bucket %s of %s: %w", bucket, f.path, err)
	}
	return values, nil
}

// Get reads one value. It returns false if the key does not exist.
func (f *File) Get(bucket, key string, into any) (there bool, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		raw := tx.Bucket([]byte(bucket)).Get([]byte(key))
		if there = raw != nil; !there {
			return nil
		}
		return decode(raw, into)
	})
	if err != nil {
		return false, fmt.Errorf("read %s/%s of %s: %w", bucket, key, f.path, err)
	}
	return there, nil
}

// Clear empties buckets.
func (f *File) Clear(buckets ...string) error {
	return f.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if err := tx.DeleteBucket([]byte(name)); err != nil {
				return err
			}
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ReadBootID reads the ID of this boot from a file of the kernel.
func ReadBootID(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// SwapBootID stores the boot ID and returns the earlier one; "" for a new file.
func (f *File) SwapBootID(id string) (before string, err error) {
	err = f.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(BucketMeta))
		before = string(b.Get([]byte("boot-id")))
		return b.Put([]byte("boot-id"), []byte(id))
	})
	return before, err
}

// prepare creates missing buckets and checks the schema.
func (f *File) prepare() error {
	return f.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return fmt.Errorf("bucket %s: %w", name, err)
			}
		}
		meta := tx.Bucket([]byte(BucketMeta))
		key := []byte("schema")
		raw := meta.Get(key)
		f.Incomplete = raw == nil || meta.Get([]byte(KeyIncomplete)) != nil
		if raw == nil {
			err := meta.Put([]byte(KeyIncomplete), []byte("attachments"))
			return errors.Join(err, meta.Put(key, binary.BigEndian.AppendUint32(nil, schemaVersion)))
		}
		if len(raw) != 4 {
			return fmt.Errorf("state file %s has an invalid schema %q: move the file to start with a new one", f.path,
				raw)
		}
		if v := binary.BigEndian.Uint32(raw); v > schemaVersion {
			return fmt.Errorf(
				"state file %s has schema %d, this agent supports up to %d: run the newer agent, or move the file to start with a new one",
				f.path, v, schemaVersion)
		}
		return nil
	})
}

var errDamaged = errors.New("damaged")

func isDamage(err error) bool {
	return errors.Is(err, errDamaged) || errors.Is(err, bolterrors.ErrInvalid) ||
		errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch)
}

// openValid opens the file and checks all of it: bbolt opens a damaged file without an error and panics later. Reading
// beyond the end of a truncated file is a memory fault; SetPanicOnFault makes it a panic.
func openValid(ctx context.Context, path string, log *slog.Logger) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
			if db != nil {
				err = errors.Join(err, db.Close())
			}
			db = nil
		}
	}()
	open := func(readOnly bool) (*bbolt.DB, error) {
		return bbolt.Open(path, 0o600, &bbolt.Options{
			ReadOnly: readOnly, Timeout: lockWait(ctx), FreelistType: bbolt.FreelistMapType,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				return openRestricted(name, flag, mode, log)
			},
		})
	}
	if info, statErr := os.Stat(path); statErr == nil && info.Size() > 0 {
		if db, err = open(true); err == nil { // read-only: bbolt does not load the list of free pages
			err = errors.Join(checkPages(db), db.Close())
		}
	}
	if err == nil {
		db, err = open(false)
	}
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("state file %s is locked by %s: stop that agent first", path, holder(path))
	}
	if err != nil && isTruncated(path) && !errors.As(err, new(syscall.Errno)) { // bbolt has no specific error
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open state file %s: %w", path, err)
	}
	if err := check(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// isTruncated reports whether a file is shorter than its two meta pages.
func isTruncated(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0 && info.Size() < 2*int64(os.Getpagesize())
}

func check(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		if len(errs) > 0 {
			return fmt.Errorf("%w: %w", errDamaged, errors.Join(errs[:min(len(errs), 3)]...))
		}
		return nil
	})
}

func lockWait(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), time.Millisecond)
	}
	return 10 * time.Second
}
