package informer

import (
	"errors"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// answers records whether the API server answers the requests of a group, by the kind of the objects: one kind may be
// denied while others are watched.
type answers struct {
	mu     sync.Mutex
	failed map[string]error // the last error of each kind whose last request failed
}

// record records the result of a request. An expired version of a watch is not a failure: the informer lists again.
func (a *answers) record(objects string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		delete(a.failed, objects)
		return
	}
	if a.failed == nil {
		a.failed = map[string]error{}
	}
	a.failed[objects] = err
}

var errNoAnswer = errors.New("a connection ended without an answer, or the request timed out")

// resultOf returns the error of a watch. client-go returns an empty watch, and no error, for a connection that ends or
// times out.
func resultOf(w watch.Interface, err error) error {
	if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
		return errNoAnswer
	}
	return err
}

// Failure returns why copies of objects may be outdated: an error of the API server, or of the connection to it, of a
// request that is being retried. It returns nil if all watches are established.
func (g *Group) Failure() error {
	g.answers.mu.Lock()
	defer g.answers.mu.Unlock()
	seen := map[string]bool{}
	var all []error
	for _, m := range g.members { // in a stable order
		if err := g.answers.failed[m.objects]; err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
