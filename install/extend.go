package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// errChanged means that the owner of a list wrote it while it was being extended.
var errChanged = errors.New("its owner is writing it")

// ensureExtended puts Weft's object at the end of another CNI's list. Whenever the owner writes the list anew, it is put
// there again.
func (i *installer) ensureExtended(ctx context.Context) error {
	before, err := os.ReadFile(i.Extend)
	if errors.Is(err, fs.ErrNotExist) {
		return notYet{fmt.Errorf("%s is not there: the other CNI has not written it", i.Extend)}
	}
	if err != nil {
		return fmt.Errorf("read the list of the other CNI: %w", err)
	}
	name, after, err := extended(before, i.object())
	if err != nil {
		return notYet{fmt.Errorf("%s: %w", i.Extend, err)}
	}
	i.warnOfNeighbours()
	if bytes.Equal(before, after) {
		return nil
	}
	if err := i.healthy(ctx, name); err != nil {
		return err
	}
	if err := i.replace(ctx, before, after); err != nil {
		return err
	}
	i.log.Info("configuration extended", "file", i.Extend)
	return nil
}

// replace writes another CNI's list, unless that has changed meanwhile.
func (i *installer) replace(ctx context.Context, before, after []byte) error {
	info, err := os.Stat(i.Extend)
	if err != nil {
		return fmt.Errorf("look at the list of the other CNI: %w", err)
	}
	f := file{path: i.Extend, content: after, mode: info.Mode().Perm()}
	return i.put(ctx, f, func(context.Context, string) error {
		if !bytesAre(i.Extend, before) {
			return notYet{errChanged}
		}
		return nil
	})
}

// lists are edited as they are: what others wrote there is kept as it is written.
type foreignList struct {
	keys    map[string]json.RawMessage
	name    string
	plugins []json.RawMessage
}

func parseList(raw []byte) (l foreignList, err error) {
	if err := json.Unmarshal(raw, &l.keys); err != nil {
		return l, fmt.Errorf("no list of plugins: %w", err)
	}
	if err := json.Unmarshal(l.keys["plugins"], &l.plugins); err != nil {
		return l, errors.New("no list of plugins: the key plugins holds none")
	}
	if err := json.Unmarshal(l.keys["name"], &l.name); err != nil {
		return l, errors.New("no list of plugins: the key name holds no name")
	}
	return l, nil
}

// typeOf is the type of a plugin's object; "" if it has none.
func typeOf(raw json.RawMessage) string {
	var o struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(raw, &o) // what is no object has no type
	return o.Type
}

// extended is the list with our object at its end, and only there. One that has it so already comes back as it was.
func extended(raw []byte, ours object) (name string, after []byte, err error) {
	l, err := parseList(raw)
	if err != nil {
		return "", nil, err
	}
	own, err := json.Marshal(ours)
	if err != nil {
		return "", nil, fmt.Errorf("write the configuration: %w", err)
	}
	others := without(l.plugins)
	if len(others) == 0 {
		return "", nil, errors.New("there is no plugin before Weft's in it: --mode primary is for that")
	}
	if n := len(l.plugins); n == len(others)+1 && sameObject(l.plugins[n-1], own) {
		return l.name, raw, nil
	}
	after, err = l.with(append(others, own))
	return l.name, after, err
}

// reduced is the list without our object.
func reduced(raw []byte) (after []byte, changed bool, err error) {
	l, err := parseList(raw)
	if err != nil {
		return nil, false, err
	}
	others := without(l.plugins)
	if len(others) == len(l.plugins) {
		return raw, false, nil
	}
	if len(others) == 0 {
		return nil, false, errors.New("nothing would be left in it")
	}
	after, err = l.with(others)
	return after, true, err
}

func without(plugins []json.RawMessage) []json.RawMessage {
	var others []json.RawMessage
	for _, p := range plugins {
		if typeOf(p) != program {
			others = append(others, p)
		}
	}
	return others
}

func (l foreignList) with(plugins []json.RawMessage) ([]byte, error) {
	raw, err := json.Marshal(plugins)
	if err != nil {
		return nil, fmt.Errorf("write the list: %w", err)
	}
	l.keys["plugins"] = raw
	return render(l.keys)
}

// sameObject compares what two texts say.
func sameObject(a, b []byte) bool {
	var compactA, compactB bytes.Buffer
	return json.Compact(&compactA, a) == nil && json.Compact(&compactB, b) == nil && bytes.Equal(compactA.Bytes(), compactB.Bytes())
}

func bytesAre(path string, content []byte) bool {
	now, err := os.ReadFile(path)
	return err == nil && bytes.Equal(now, content)
}
