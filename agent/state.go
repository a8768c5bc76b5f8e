package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/weftnet/weft/eventloop"
)

// schemaVersion is that of the state file's layout. A newer one is refused: an older agent must not guess.
const schemaVersion = 1

// Buckets of the state file.
const (
	metaBucket         = "meta"
	attachmentsBucket  = "attachments"
	leasesBucket       = "leases"
	networksBucket     = "networks"
	devicesBucket      = "devices"
	clusterBucket      = "cluster"
	nodesBucket        = "nodes"
	blocksBucket       = "blocks"
	poolsBucket        = "pools"
	externalsBucket    = "externals"
	appliedBucket      = "applied"
	transactionsBucket = "transactions"
	quarantineBucket   = "quarantine"
	chainsBucket       = "chains"
)

// debtKey is in the meta bucket from a file's beginning until all attachments that an earlier file may have known are in
// this one.
const debtKey = "owes"

// trialKey is in the meta bucket while a trial is under way.
const trialKey = "trial"

var allBuckets = []string{
	metaBucket, attachmentsBucket, leasesBucket, networksBucket, devicesBucket, clusterBucket, nodesBucket, blocksBucket, poolsBucket,
	externalsBucket, appliedBucket, transactionsBucket, quarantineBucket, chainsBucket, eventloop.RecordsBucket,
}

// State is the file of everything durable. It belongs to one agent at a time.
type State struct {
	db           *bbolt.DB
	path         string
	saving       sync.Mutex // one Save at a time: what rides along is counted between its transaction and its end
	journal      *journal
	transactions *transactions
	chains       *rider[chainEnd]
	buffered     chan struct{} // holds a token when an entry was buffered

	onSave func(took time.Duration) // told of each write that became durable
	onFull func(err error)          // told of each write that the file did not take

	// owes says that pods may be wired that the file does not know of: it is new, or an entry of it cannot be read.
	owes bool

	// Quarantined is the path that a damaged file was moved to when this one was opened; "" = it was sound.
	Quarantined string
}

// OpenState opens the state file, makes it if it is not there, and waits until ctx ends for another agent to let go of
// it. A damaged file is moved aside and a new one begun; one of a newer schema is refused.
func OpenState(ctx context.Context, path string, log *slog.Logger) (*State, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	restrictDamaged(path, log)
	db, err := openSound(ctx, path, log)
	s := &State{db: db, path: path, onSave: func(time.Duration) {}, onFull: func(error) {}, buffered: make(chan struct{}, 1)}
	if isDamage(err) {
		s.Quarantined = fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000"))
		log.Error("state file is damaged, moved aside", "file", path, "to", s.Quarantined, "err", err)
		if err := os.Rename(path, s.Quarantined); err != nil {
			return nil, fmt.Errorf("move damaged state file aside: %w", err)
		}
		s.db, err = openSound(ctx, path, log)
	}
	if err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	s.journal, s.transactions = newJournal(s.db, s.buffered), newTransactions(s.buffered)
	s.chains = &rider[chainEnd]{store: storeChainEnd, buffered: s.buffered}
	return s, nil
}

// Close makes what is pending durable and lets go of the file.
func (s *State) Close() error {
	return errors.Join(s.Save(context.Background(), nil), s.db.Close())
}

// Save makes values durable, all or none, before it returns. It is the event loop's durable step, and may be called by
// others at the same time.
func (s *State) Save(ctx context.Context, saved []eventloop.Saved) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	began, applied, logged, chains := time.Now(), 0, 0, 0
	complete := false
	err := s.db.Update(func(tx *bbolt.Tx) (err error) {
		for _, v := range saved {
			if err := put(tx, v); err != nil {
				return fmt.Errorf("save %s/%s: %w", v.Bucket, v.Key, err)
			}
		}
		if applied, err = s.journal.write(tx); err != nil {
			return err
		}
		if logged, err = s.transactions.write(tx); err != nil {
			return err
		}
		chains, err = s.chains.write(tx)
		complete = err == nil
		return err
	})
	switch {
	case err == nil:
		s.journal.settle(applied)
		s.transactions.settle(logged)
		s.chains.settle(chains)
		s.onSave(time.Since(began))
	case complete: // the values are sound, so it is the file
		s.onFull(err)
	}
	return err
}

// flushAfter is how long buffered entries wait for a Save that writes them too.
const flushAfter = 100 * time.Millisecond

// flushSoon writes buffered entries that no Save writes within flushAfter, until ctx ends. Operators need the last transaction before a
// crash most of all.
func (s *State) flushSoon(ctx context.Context) error {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.buffered:
		}
		wait.Reset(flushAfter)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait.C:
		}
		if !s.journal.isEmpty() || !s.transactions.isEmpty() || !s.chains.isEmpty() {
			_ = s.Save(ctx, nil) // the condition "state" reports a failure; the entries stay buffered
		}
	}
}

// trialSize is how much a trial writes, in bytes: more than an event does, so that one that succeeds says something.
const trialSize = 64 << 10

// try writes to the file, and takes away what it wrote.
func (s *State) try() error {
	write := func(value []byte) error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			if value == nil {
				return tx.Bucket([]byte(metaBucket)).Delete([]byte(trialKey))
			}
			return tx.Bucket([]byte(metaBucket)).Put([]byte(trialKey), value)
		})
	}
	if err := write(make([]byte, trialSize)); err != nil {
		return err
	}
	return write(nil)
}

func put(tx *bbolt.Tx, v eventloop.Saved) error {
	b := tx.Bucket([]byte(v.Bucket))
	if b == nil {
		return errors.New("no such bucket")
	}
	if v.Value == nil {
		return b.Delete([]byte(v.Key))
	}
	raw, err := json.Marshal(v.Value)
	if err != nil {
		return err
	}
	return b.Put([]byte(v.Key), raw)
}

// load decodes every value of a bucket, in the order of keys. One that cannot be decoded is reported and left out: it
// must not keep the others from being restored, and the file owes it from then on.
func load[V any](s *State, bucket string, log *slog.Logger) ([]V, error) {
	var values []V
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(k, raw []byte) error {
			var v V
			err := json.Unmarshal(raw, &v)
			if err == nil && bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
				err = errors.New("it is null")
			}
			if err != nil {
				log.Error("entry of the state file left out", "bucket", bucket, "key", string(k), "err", err)
				s.owes = true
				return nil
			}
			values = append(values, v)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read bucket %s of %s: %w", bucket, s.path, err)
	}
	return values, nil
}

// get reads one value; false: there is none.
func (s *State) get(bucket, key string, into any) (there bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		raw := tx.Bucket([]byte(bucket)).Get([]byte(key))
		if there = raw != nil; !there {
			return nil
		}
		return json.Unmarshal(raw, into)
	})
	if err != nil {
		return false, fmt.Errorf("read %s/%s of %s: %w", bucket, key, s.path, err)
	}
	return there, nil
}

// clear empties buckets.
func (s *State) clear(buckets ...string) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
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

// swapBootID stores id and returns what was stored before; "" for a new file.
func (s *State) swapBootID(id string) (before string, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(metaBucket))
		before = string(b.Get([]byte("boot-id")))
		return b.Put([]byte("boot-id"), []byte(id))
	})
	return before, err
}

// prepare makes the buckets of a new file and checks the version of an old one.
func (s *State) prepare() error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return fmt.Errorf("bucket %s: %w", name, err)
			}
		}
		meta := tx.Bucket([]byte(metaBucket))
		key := []byte("schema")
		raw := meta.Get(key)
		s.owes = raw == nil || meta.Get([]byte(debtKey)) != nil
		if raw == nil {
			err := meta.Put([]byte(debtKey), []byte("attachments"))
			return errors.Join(err, meta.Put(key, binary.BigEndian.AppendUint32(nil, schemaVersion)))
		}
		if len(raw) != 4 {
			return fmt.Errorf("state file %s has schema %q, which is no number: move the file away to start anew", s.path, raw)
		}
		if v := binary.BigEndian.Uint32(raw); v > schemaVersion {
			return fmt.Errorf("state file %s has schema %d, this agent knows up to %d: run the newer agent, or move the file away to start anew",
				s.path, v, schemaVersion)
		}
		return nil
	})
}

var errDamaged = errors.New("damaged")

func isDamage(err error) bool {
	return errors.Is(err, errDamaged) || errors.Is(err, bolterrors.ErrInvalid) ||
		errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch)
}

// openSound opens the file and reads all of it once: a damaged bbolt file may open without error and panic later. A file that
// is shorter than it says is a fault in the mapped memory, which ends the process unless it is made a panic.
func openSound(ctx context.Context, path string, log *slog.Logger) (db *bbolt.DB, err error) {
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
		if db, err = open(true); err == nil { // which does not load the list of free pages
			err = errors.Join(checkPages(db), db.Close())
		}
	}
	if err == nil {
		db, err = open(false)
	}
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("state file %s is held by %s: stop that agent first", path, holder(path))
	}
	if err != nil && isCut(path) && !errors.As(err, new(syscall.Errno)) { // bbolt has no error of its own for it
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

// isCut reports whether a file is too short for the two meta pages that each state file has.
func isCut(path string) bool {
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
