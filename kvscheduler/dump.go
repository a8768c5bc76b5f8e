package kvscheduler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

// dumpAll dumps the kinds, each behind those it names in After and otherwise in parallel. It runs outside of the
// state's goroutine, which works on meanwhile. Of the kinds in names only the named objects are read where the backend
// is a Reader.
func (s *Scheduler) dumpAll(
	ctx context.Context, kinds []*kind, names map[Kind]map[string]bool,
) (map[Kind]found, error) {
	over := &overlay{View: s.store.view(), dumps: make(map[Kind]found), index: make(map[Kind]map[string]int)}
	done := make(map[Kind]chan struct{}, len(kinds))
	for _, k := range kinds {
		done[k.name] = make(chan struct{})
	}
	errs := make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, k := range kinds {
		wg.Go(func() {
			defer close(done[k.name])
			for _, a := range k.after {
				if c := done[a]; c != nil {
					<-c
				}
			}
			some := names[k.name]
			if k.read == nil {
				some = nil
			}
			f, err := s.dumpKind(ctx, k, over, some)
			if err != nil {
				errs[i] = fmt.Errorf("dump %s: %w", k.name, err)
				return
			}
			over.add(k.name, f, some == nil)
		})
	}
	wg.Wait()
	return over.dumps, errors.Join(errs...)
}

// dumpKind reads the named objects of a kind; nil: all.
func (s *Scheduler) dumpKind(ctx context.Context, k *kind, view View, names map[string]bool) (found, error) {
	var f found
	var err error = context.DeadlineExceeded
	s.calls.bounded(ctx, nil, dumpTimeout, func(ctx context.Context) func() {
		if names != nil {
			got, gerr := k.readNamed(ctx, view, slices.Sorted(maps.Keys(names)))
			return func() {
				f = got
				err = gerr
			}
		}
		got, gerr := k.dumped(ctx, view)
		return func() {
			f = got
			err = gerr
		}
	})
	return f, err
}

func (k *kind) dumped(ctx context.Context, view View) (f found, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in backend: %v", p)
		}
	}()
	return k.dump(ctx, view)
}

// overlay is a view in which the kinds that were dumped whole already stand as the dump found them.
type overlay struct {
	View
	mu    sync.RWMutex
	dumps map[Kind]found
	index map[Kind]map[string]int // of the kinds that were dumped whole
}

func (o *overlay) add(k Kind, f found, whole bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dumps[k] = f
	if whole {
		o.index[k] = indexOf(f)
	}
}

// Applied implements View.
func (o *overlay) Applied(r Ref) (value, meta any, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	index := o.index[r.Kind]
	if index == nil {
		return o.View.Applied(r)
	}
	f := o.dumps[r.Kind]
	i, ok := index[r.Name]
	if !ok {
		return nil, nil, false
	}
	value, meta = f.box(i)
	return value, meta, true
}

// All implements View.
func (o *overlay) All(k Kind) iter.Seq2[string, Status] {
	o.mu.RLock()
	f := o.dumps[k]
	whole := o.index[k] != nil
	o.mu.RUnlock()
	if !whole {
		return o.View.All(k)
	}
	return func(yield func(string, Status) bool) {
		for i := range f.len() {
			name := f.head(i).name
			st, known := o.Status(Ref{Kind: k, Name: name})
			if !known {
				st.Phase = Observed
			}
			if !yield(name, st) {
				return
			}
		}
	}
}
