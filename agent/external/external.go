// Package external follows the directory of external configuration: values for the machine that other programs than
// Weft set.
package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/jsonerror"
	"github.com/weftnet/weft/internal/strictjson"
	"github.com/weftnet/weft/internal/yamltext"
	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Files follows the directory of external configuration. Each file is YAML, key -> value, and a source of its own. The
// values of a file stay if it becomes unreadable or is not owned by root; they are removed with the file.
type Files struct {
	dir   string
	loop  setter
	log   *slog.Logger
	known map[string]map[string][]byte // by file

	mu  sync.Mutex
	bad map[string]string // by file, why it is not applied
}

// New returns the files of a directory. Run applies them to the loop.
func New(dir string, loop setter, log *slog.Logger) *Files {
	return &Files{
		dir:   dir,
		loop:  loop,
		log:   log,
		known: make(map[string]map[string][]byte),
		bad:   make(map[string]string),
	}
}

// setter replaces the values of a source: the event loop.
type setter interface {
	SetExternal(ctx context.Context, source string, values map[string][]byte) (*eventloop.Record, error)
}

// maxExternalFile bounds a file, in bytes.
const maxExternalFile = 1 << 20

// look applies the files that changed since the last call.
func (e *Files) look(ctx context.Context) {
	names, err := filepath.Glob(filepath.Join(e.dir, "*.yaml"))
	if err != nil {
		e.report(e.dir, err)
		return
	}
	for _, name := range names {
		values, err := readExternal(name)
		if err != nil {
			e.report(name, err)
			continue
		}
		if known, ok := e.known[name]; !ok || !maps.EqualFunc(known, values, slices.Equal) {
			e.set(ctx, name, values)
		} else {
			e.clear(name)
		}
	}
	for name := range e.known {
		if !slices.Contains(names, name) {
			e.set(ctx, name, nil)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.bad, func(name, _ string) bool { return !slices.Contains(names, name) })
}

func (e *Files) set(ctx context.Context, name string, values map[string][]byte) {
	if _, err := e.loop.SetExternal(ctx, "file "+filepath.Base(name), values); err != nil {
		e.report(name, err)
		return
	}
	e.clear(name)
	if values == nil {
		delete(e.known, name)
		return
	}
	e.known[name] = values
}

// clear notes that a file has no fault.
func (e *Files) clear(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.bad, name)
}

// report notes a fault, and logs it once.
func (e *Files) report(name string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bad[name] != err.Error() {
		e.bad[name] = err.Error()
		e.log.Error("external configuration refused", "file", name, "err", err)
	}
}

func readExternal(name string) (map[string][]byte, error) {
	// The checks are on the open file, not on its name: another user may be able to rename files in the directory.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, errNotRegular
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := trusted(info); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxExternalFile))
	if err != nil {
		return nil, err
	}
	return Parse(raw)
}

var errNotRegular = errors.New("it is not a regular file")

// trusted rejects a file that a user other than root, or the agent's, could have written.
func trusted(info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errNotRegular
	case !ok || owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return errors.New("it is not owned by root")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write it (mode %v)", info.Mode().Perm())
	case info.Size() > maxExternalFile:
		return fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), maxExternalFile)
	}
	return nil
}

// Parse reads key -> value from all documents of a YAML text, or from JSON. The event loop validates each key and
// value.
func Parse(raw []byte) (map[string][]byte, error) {
	values := make(map[string][]byte)
	for _, document := range yamltext.Documents(raw) {
		if err := parseDocument(&document, values); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func parseDocument(document *yamltext.Document, values map[string][]byte) error {
	for _, p := range document.Repeated() {
		return fmt.Errorf("line %d: %s: %s", p.Line, p.Path, p.Reason)
	}
	content, err := document.Decode()
	if wrong := (*yamltext.SyntaxError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("line %d: %w", wrong.Line, err)
	}
	tree, is := content.(map[string]any)
	if !is {
		return fmt.Errorf("line %d: expected keys and values", document.Line(nil)) // the text may be a secret
	}
	for key, value := range tree {
		if _, is := values[key]; is {
			return fmt.Errorf("%s: it is already set in an earlier document", key)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("value of %s: %w", key, err)
		}
		values[key] = encoded
	}
	return nil
}

// Condition returns the condition that all files are read and no value was dropped; drops are the dropped values.
func (e *Files) Condition(drops []eventloop.Drop) *operatorv1.Condition {
	e.mu.Lock()
	defer e.mu.Unlock()
	var faults []string
	for _, file := range slices.Sorted(maps.Keys(e.bad)) {
		faults = append(faults, file+": "+e.bad[file])
	}
	for _, d := range drops {
		faults = append(faults, fmt.Sprintf("%s of %s: %s", d.Key, d.Source, d.Reason))
	}
	return &operatorv1.Condition{Name: "external", Ok: len(faults) == 0, Message: strings.Join(faults, "; ")}
}

// Codec decodes values of external configuration. The scheduler ignores unknown fields, because it reads what other
// releases stored; in external configuration an unknown field, or one in another spelling, is an error.
type Codec struct{ *kvscheduler.Scheduler }

// Decode rejects unknown fields by their paths.
func (c Codec) Decode(key string, doc []byte) (any, error) {
	v, err := c.Scheduler.Decode(key, doc)
	if err != nil {
		return nil, jsonerror.Plain(err)
	}
	return v, strictjson.Unmarshal(doc, reflect.New(reflect.TypeOf(v)).Interface())
}

// Run applies the directory now and whenever it changes, until ctx ends.
func (e *Files) Run(ctx context.Context) error {
	if e.dir == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	e.look(ctx)
	return config.Watch(ctx, e.dir, e.log, func() { e.look(ctx) })
}
