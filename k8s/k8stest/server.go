// Package k8stest is an API server of Kubernetes in the test's process: objects of any kind, lists, watches, selectors,
// resource versions, preconditions and failures. It does not validate or authorise.
package k8stest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// Server is an API server in memory.
type Server struct {
	t    *testing.T
	http *httptest.Server

	mu          sync.Mutex
	version     int
	oldest      int               // the lowest version from which a watch can continue
	objects     map[string]object // by resource/namespace/name
	history     []event
	watchers    map[*watcher]bool
	unreachable bool
	missing     []string // resources that are not installed
	requests    []string
	fail        func(r *http.Request) int
	exec        func(Exec) int
	onlySPDY    bool
}

type object = *unstructured.Unstructured

// event is a change of an object.
type event struct {
	version  int
	resource string
	kind     string // ADDED, MODIFIED, DELETED
	object   object
	before   object // of MODIFIED
}

// New starts a server without objects until the end of the test.
func New(t *testing.T) *Server {
	s := &Server{t: t, version: 100, objects: make(map[string]object), watchers: make(map[*watcher]bool)}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.DropWatches()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Connection returns the connection to the server.
func (s *Server) Connection() *rest.Config { return &rest.Config{Host: s.http.URL} }

// Put creates or replaces an object of a resource ("pods", "ippools.contivpp.io").
func (s *Server) Put(resource string, o runtime.Object) {
	s.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		s.t.Fatalf("put into %s: %v", resource, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &unstructured.Unstructured{Object: fields}
	if before := s.objects[keyOf(resource, u)]; before != nil && u.GetUID() == "" {
		u.SetUID(before.GetUID())
	}
	s.writeLocked(resource, u)
}

// Remove deletes an object.
func (s *Server) Remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(resource, strings.Join([]string{resource, namespace, name}, "/"))
}

// Disconnect closes all connections and makes the server unreachable until Reconnect.
func (s *Server) Disconnect() {
	s.mu.Lock()
	s.unreachable = true
	s.mu.Unlock()
	s.DropWatches()
}

// Reconnect makes the server reachable again.
func (s *Server) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreachable = false
}

// Uninstall makes the resources unknown.
func (s *Server) Uninstall(resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = resources
}

// DropWatches ends all watches.
func (s *Server) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		close(w.events)
		delete(s.watchers, w)
	}
}

// Compact drops the history: earlier watches must begin with a list.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
	s.history = nil
}

// Fail makes requests fail with the status that f returns; with 0, and if f is nil, they succeed.
func (s *Server) Fail(f func(r *http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Requests lists method, path and query of all requests so far.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Object reads an object. It returns false if the object does not exist.
func (s *Server) Object(resource, namespace, name string, into any) bool {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[strings.Join([]string{resource, namespace, name}, "/")]
	if o == nil {
		return false
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		s.t.Fatalf("read %s %s: %v", resource, name, err)
	}
	return true
}

func keyOf(resource string, o object) string {
	return strings.Join([]string{resource, o.GetNamespace(), o.GetName()}, "/")
}

func (s *Server) writeLocked(resource string, o object) object {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	version, kind := kindOf(resource)
	o.SetAPIVersion(version)
	o.SetKind(kind)
	key := keyOf(resource, o)
	before := s.objects[key]
	if o.GetUID() == "" {
		o.SetUID(uid(s.version))
	}
	s.objects[key] = o.DeepCopy()
	if before != nil && len(before.GetFinalizers()) > 0 && o.GetDeletionTimestamp() != nil &&
		len(o.GetFinalizers()) == 0 {
		s.removeLocked(resource, key)
		return o
	}
	e := event{version: s.version, resource: resource, kind: "ADDED", object: o.DeepCopy(), before: before}
	if before != nil {
		e.kind = "MODIFIED"
	}
	s.notifyLocked(e)
	return o
}

func (s *Server) removeLocked(resource, key string) {
	o := s.objects[key]
	if o == nil {
		return
	}
	if len(o.GetFinalizers()) > 0 {
		if o = o.DeepCopy(); o.GetDeletionTimestamp() == nil {
			o.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
			o.SetGeneration(o.GetGeneration() + 1)
			s.writeLocked(resource, o)
		}
		return
	}
	delete(s.objects, key)
	s.version++
	o = o.DeepCopy()
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.notifyLocked(event{version: s.version, resource: resource, kind: "DELETED", object: o})
}

func (s *Server) notifyLocked(e event) {
	s.history = append(s.history, e)
	for w := range s.watchers {
		if seen, wanted := w.convert(e); wanted {
			w.events <- seen
		}
	}
}

// Patience bounds a wait. Most waits take milliseconds; after several errors client-go waits up to 30 s.
const Patience = 90 * time.Second

// Eventually waits for a condition, and fails the test if it does not become true.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, Patience, true,
		func(context.Context) (bool, error) {
			return is(), nil
		})
	if err != nil {
		t.Fatalf("not within %v: %s", Patience, what)
	}
}
