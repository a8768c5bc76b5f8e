package blockstest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// Fault is the reaction of a store to one write.
type Fault int

// Faults.
const (
	None        Fault = iota
	Conflict          // another writer was faster: the write is lost, and the object has a new resource version
	Unavailable       // the write is lost, and the caller gets ErrTimeout
	Lost              // it is written, but the answer is lost
	Late              // the caller gets ErrTimeout, and the write happens when Arrive is called
)

// ErrTimeout is an error that does not tell whether the write happened.
var ErrTimeout = errors.New("the server did not answer in time")

// Store is a store of blocks in memory. All its methods may be called by several goroutines.
type Store struct {
	Fault func(verb, name string) Fault // asked before each write; nil: none

	mu      sync.Mutex
	objects map[string]*v1.IPBlock
	stale   []v1.IPBlock // answer to a list that need not be fresh; nil: the present blocks
	version int
	calls   map[string]int
	late    []func() // writes under way
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{objects: make(map[string]*v1.IPBlock), calls: make(map[string]int)}
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: v1.Group, Resource: "ipblocks"}
}

// Calls counts the calls so far, by verb; "" counts all.
func (s *Store) Calls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := map[string]int{}
	for verb, n := range s.calls {
		counted[verb] = n
		counted[""] += n
	}
	return counted
}

// All lists what there is, by name.
func (s *Store) All() []v1.IPBlock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allLocked()
}

// Arrive lets the writes that are under way reach the store.
func (s *Store) Arrive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, write := range s.late {
		write()
	}
	s.late = nil
}

// Of lists the blocks of a node, as its watch would.
func (s *Store) Of(node string) []*v1.IPBlock {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []*v1.IPBlock
	for _, b := range s.objects {
		if string(b.Spec.Node) == node {
			own = append(own, b)
		}
	}
	return own
}

// Freeze makes lists that need not be fresh answer what there is now, from now on.
func (s *Store) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = s.allLocked()
}

// Put writes an object as another client would.
func (s *Store) Put(b v1.IPBlock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.UID == "" {
		b.UID = types.UID("uid-" + strconv.Itoa(s.version+1))
	}
	s.writeLocked(&b)
}

// Drop deletes an object as another client would.
func (s *Store) Drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
}

func (s *Store) allLocked() []v1.IPBlock {
	var all []v1.IPBlock
	for _, b := range s.objects {
		all = append(all, *b) // neither the store nor its callers change stored objects
	}
	slices.SortFunc(all, func(x, y v1.IPBlock) int {
		if x.Name < y.Name {
			return -1
		}
		return 1
	})
	return all
}

func (s *Store) writeLocked(b *v1.IPBlock) *v1.IPBlock {
	s.version++
	b.ResourceVersion = strconv.Itoa(s.version)
	s.objects[b.Name] = b.DeepCopy()
	return b
}

// Get reads one object.
func (s *Store) Get(_ context.Context, name string) (*v1.IPBlock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["get"]++
	b, ok := s.objects[name]
	if !ok {
		return &v1.IPBlock{}, apierrors.NewNotFound(resource(), name)
	}
	return b.DeepCopy(), nil
}

// List lists the blocks of a pool.
func (s *Store) List(_ context.Context, p blocks.PoolCIDR, fresh bool) ([]v1.IPBlock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["list"]++
	all := s.stale
	if fresh || all == nil {
		all = s.allLocked()
	}
	return slices.DeleteFunc(slices.Clone(all), func(b v1.IPBlock) bool {
		return b.Spec.Pool != p.Name || string(b.Spec.Network) != p.Network
	}), nil
}

// Create makes an object.
func (s *Store) Create(_ context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	b = b.DeepCopy()
	return s.write("create", b, func() (*v1.IPBlock, error) {
		if _, exists := s.objects[b.Name]; exists {
			return &v1.IPBlock{}, apierrors.NewAlreadyExists(resource(), b.Name)
		}
		made := b.DeepCopy()
		made.UID = types.UID("uid-" + strconv.Itoa(s.version+1))
		return s.writeLocked(made), nil
	})
}

// Update changes an object of the same resource version.
func (s *Store) Update(_ context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	b = b.DeepCopy()
	return s.write("update", b, func() (*v1.IPBlock, error) {
		if err := s.sameLocked(b); err != nil {
			return &v1.IPBlock{}, err
		}
		return s.writeLocked(b.DeepCopy()), nil
	})
}

// Delete removes an object of the same UID and resource version.
func (s *Store) Delete(_ context.Context, b *v1.IPBlock) error {
	b = b.DeepCopy()
	_, err := s.write("delete", b, func() (*v1.IPBlock, error) {
		if err := s.sameLocked(b); err != nil {
			return nil, err
		}
		delete(s.objects, b.Name)
		return nil, nil
	})
	return err
}

func (s *Store) sameLocked(b *v1.IPBlock) error {
	there, exists := s.objects[b.Name]
	if !exists {
		return apierrors.NewNotFound(resource(), b.Name)
	}
	if there.ResourceVersion != b.ResourceVersion || there.UID != b.UID {
		return apierrors.NewConflict(resource(), b.Name, errors.New("it is another one by now"))
	}
	return nil
}

func (s *Store) write(verb string, b *v1.IPBlock, do func() (*v1.IPBlock, error)) (*v1.IPBlock, error) {
	fault := None
	if s.Fault != nil {
		fault = s.Fault(verb, b.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[verb]++
	switch there := s.objects[b.Name]; {
	case fault == Unavailable:
		return &v1.IPBlock{}, ErrTimeout
	case fault == Late:
		s.late = append(s.late, func() { _, _ = do() }) // no caller waits for the answer
		return &v1.IPBlock{}, ErrTimeout
	case fault == Conflict && there != nil:
		s.writeLocked(there)
	}
	made, err := do()
	if fault == Lost && err == nil {
		return &v1.IPBlock{}, ErrTimeout
	}
	return made, err
}
