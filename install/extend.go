package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weftnet/weft/internal/jsonerror"
)

// extension is Weft's object in another CNI's list.
type extension struct {
	*Options
	log   *notices
	files *files
}

// ensure appends Weft's object to another CNI's list, again after each time that the owner rewrites the list.
func (e *extension) ensure(ctx context.Context) error {
	before, err := os.ReadFile(e.Extend)
	if errors.Is(err, fs.ErrNotExist) {
		return temporary{e.notWritten()}
	}
	if err != nil {
		return fmt.Errorf("read the other CNI's list: %w", err)
	}
	name, after, err := withWeft(before, e.object())
	if err != nil {
		return temporary{fmt.Errorf("%s: %w", e.Extend, err)}
	}
	e.log.warnOfOthers(e.Extend)
	if bytes.Equal(before, after) {
		return nil
	}
	if err := e.checkStatus(ctx, name); err != nil {
		return err
	}
	if err := e.replace(ctx, before, after); err != nil {
		return err
	}
	e.log.Info("configuration extended", "file", e.Extend)
	return nil
}

// notWritten says why the other CNI's list does not exist. In a container the target of a link may be outside the
// mounted directories.
func (e *extension) notWritten() error {
	if target, err := os.Readlink(e.Extend); err == nil {
		return fmt.Errorf("%s is a link to %s, which does not exist here: use a path that the installer can reach",
			e.Extend, target)
	}
	return fmt.Errorf("%s does not exist: the other CNI has not written it", e.Extend)
}

// replace writes another CNI's list unless the list changed since it was read. It keeps a symbolic link and writes its
// target.
func (e *extension) replace(ctx context.Context, before, after []byte) error {
	path, err := filepath.EvalSymlinks(e.Extend)
	if err != nil {
		return fmt.Errorf("find the other CNI's list: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read the mode of the other CNI's list: %w", err)
	}
	f := file{path: path, content: after, mode: info.Mode().Perm()}
	return e.files.put(ctx, f, func(context.Context, string) error {
		if !hasContent(e.Extend, before) {
			return temporary{errors.New("the other CNI has just written it")}
		}
		return nil
	})
}

// foreignList is another CNI's list. Its keys and plugins keep their text.
type foreignList struct {
	keys    map[string]json.RawMessage
	name    string
	plugins []json.RawMessage
}

func parseList(raw []byte) (l foreignList, err error) {
	if err := json.Unmarshal(raw, &l.keys); err != nil {
		return l, fmt.Errorf("not a CNI configuration list: %w", jsonerror.Plain(err))
	}
	if err := json.Unmarshal(l.keys["plugins"], &l.plugins); err != nil {
		return l, errors.New("not a CNI configuration list: the key plugins has no list")
	}
	if err := json.Unmarshal(l.keys["name"], &l.name); err != nil {
		return l, errors.New("not a CNI configuration list: the key name has no string")
	}
	return l, nil
}

// typeOf returns the type of a plugin's object, or "".
func typeOf(raw json.RawMessage) string {
	var o struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(raw, &o) // other values have no type
	return o.Type
}

// withWeft returns the list with Weft's object at its end, and only there. It returns raw if the object is there
// already.
func withWeft(raw []byte, ours object) (name string, after []byte, err error) {
	l, err := parseList(raw)
	if err != nil {
		return "", nil, err
	}
	own, err := json.Marshal(ours)
	if err != nil {
		return "", nil, fmt.Errorf("encode the configuration: %w", err)
	}
	others := foreignPlugins(l.plugins)
	if len(others) == 0 {
		return "", nil, errors.New("it has no plugin that Weft can follow: use --mode primary")
	}
	if n := len(l.plugins); n == len(others)+1 && sameObject(l.plugins[n-1], own) {
		return l.name, raw, nil
	}
	after, err = l.with(append(others, own))
	return l.name, after, err
}

// withoutWeft returns the list without Weft's object.
func withoutWeft(raw []byte) (after []byte, changed bool, err error) {
	l, err := parseList(raw)
	if err != nil {
		return nil, false, err
	}
	others := foreignPlugins(l.plugins)
	if len(others) == len(l.plugins) {
		return raw, false, nil
	}
	if len(others) == 0 {
		return nil, false, errors.New("it has no other plugin than Weft: remove the file")
	}
	after, err = l.with(others)
	return after, true, err
}

func foreignPlugins(plugins []json.RawMessage) []json.RawMessage {
	return slices.DeleteFunc(slices.Clone(plugins), func(p json.RawMessage) bool { return typeOf(p) == program })
}

func (l foreignList) with(plugins []json.RawMessage) ([]byte, error) {
	raw, err := json.Marshal(plugins)
	if err != nil {
		return nil, fmt.Errorf("encode the list: %w", err)
	}
	l.keys["plugins"] = raw
	return render(l.keys)
}

// sameObject reports whether two JSON texts differ in white space only.
func sameObject(a, b []byte) bool {
	var compactA, compactB bytes.Buffer
	return json.Compact(&compactA, a) == nil && json.Compact(&compactB, b) == nil &&
		bytes.Equal(compactA.Bytes(), compactB.Bytes())
}
