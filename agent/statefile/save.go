package statefile

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weftnet/weft/eventloop"
)

// Save writes the values durably, all or none. It is safe for concurrent use. It returns an error when ctx ends, also
// while the disk does not answer: such a write cannot be ended, so it is undone when it has ended, before another one
// begins. A crash before that keeps its values.
func (f *File) Save(ctx context.Context, saved []eventloop.Saved) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case f.slot <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("an earlier write to the state file has not ended: %w", context.Cause(ctx))
	}
	w := write{File: f, ctx: ctx, saved: saved, done: make(chan error, 1)}
	go func() {
		defer func() { <-f.slot }()
		w.run()
	}()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	if !w.end.CompareAndSwap(running, abandoned) {
		return <-w.done
	}
	err := fmt.Errorf("the write to the state file has not ended, the disk does not answer: %w", context.Cause(ctx))
	f.OnFull(err)
	return err
}

// The ends of a write: its caller got the result, or left before.
const (
	running int32 = iota
	answered
	abandoned
)

// write is one transaction of Save.
type write struct {
	*File
	ctx    context.Context
	saved  []eventloop.Saved
	before []former // previous values of the keys of saved, to undo an abandoned write
	end    atomic.Int32
	done   chan error // of capacity 1
}

// former is the value of a key in the file; nil: none.
type former struct {
	bucket, key string
	raw         []byte
}

func (w *write) run() {
	began := time.Now()
	complete, err := w.commit()
	isAnswered := w.end.CompareAndSwap(running, answered)
	switch {
	case err == nil && isAnswered:
		w.OnSave(time.Since(began))
	case err == nil:
		w.restore = append(w.restore, w.before...)
		if _, err = (&write{File: w.File, ctx: context.Background()}).commit(); err != nil {
			w.OnFull(err)
		}
	case complete && isAnswered: // the values are valid: the file is the cause
		w.OnFull(err)
	}
	w.done <- err
}

// commit writes the values and the buffers. complete reports whether all of them could be encoded.
func (w *write) commit() (complete bool, err error) {
	written := make([]uint64, len(w.buffers))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while values are encoded: %v", p)
		}
		for i, b := range w.buffers {
			if err != nil {
				written[i] = 0
			}
			b.settle(written[i])
		}
	}()
	err = w.db.Update(func(tx *bbolt.Tx) (err error) {
		if err := restore(tx, w.restore); err != nil {
			return err
		}
		for _, v := range w.saved {
			if err := w.put(tx, v); err != nil {
				return err
			}
		}
		if err := w.ctx.Err(); err != nil { // it waited for the file
			return err
		}
		for i, b := range w.buffers {
			if written[i], err = b.write(tx); err != nil {
				return err
			}
		}
		complete = true
		return nil
	})
	if err == nil {
		w.restore = nil
	}
	return complete, err
}

// put writes a value, and keeps the former one.
func (w *write) put(tx *bbolt.Tx, v eventloop.Saved) error {
	if b := tx.Bucket([]byte(v.Bucket)); b != nil {
		w.before = append(w.before, former{v.Bucket, v.Key, append([]byte(nil), b.Get([]byte(v.Key))...)})
	}
	return put(tx, v)
}

// restore undoes abandoned writes, the last value first.
func restore(tx *bbolt.Tx, values []former) error {
	for _, was := range slices.Backward(values) {
		b := tx.Bucket([]byte(was.bucket))
		if was.raw == nil {
			if err := b.Delete([]byte(was.key)); err != nil {
				return err
			}
			continue
		}
		if err := b.Put([]byte(was.key), was.raw); err != nil {
			return err
		}
	}
	return nil
}
