// Package partial reads custom resources part by part. The definition of a kind (CRD) may accept values that its Go
// type cannot hold, and the API server returns all objects of a kind in one list: without this one unreadable object
// would hide all others.
package partial

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/strictjson"
)

// Object is an object whose spec and status are not read yet.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

// ReadObject reads an object of any spec and status. It fails only for metadata that no API server sends.
func ReadObject(raw []byte, kind string) (*Object, error) {
	o := &Object{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, o); err != nil {
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	return o, nil
}

// maxReasons is the number of reasons that are kept of an object, and maxReason their length: each agent keeps those of
// all objects, and users write objects whose parts are all unreadable.
const (
	maxReasons = 16
	maxReason  = 256
)

// Reader reads the parts of an object.
type Reader struct {
	Unreadable []string // why parts could not be read, each with the path of the part; those of the first maxReasons
}

// Read reads a part, which may be missing. It fails for a value of the wrong type and for unknown fields, and records
// the error. The part is then undefined.
func (r *Reader) Read(path string, raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	err := strictjson.Unmarshal(raw, into)
	if err != nil {
		r.note(path + ": " + err.Error())
	}
	return err
}

func (r *Reader) note(reason string) {
	switch n := len(r.Unreadable); {
	case n > maxReasons:
		return
	case n == maxReasons:
		reason = "and other parts"
	case len(reason) > maxReason:
		reason = line.Cut(reason, maxReason, "...")
	}
	r.Unreadable = append(r.Unreadable, reason)
}

// Each reads a list, each item by itself. replacement returns what replaces an item, or the whole list, that cannot be
// read.
func Each[T any](r *Reader, path string, raw json.RawMessage, replacement func(json.RawMessage) T) []T {
	var items []json.RawMessage
	if r.Read(path, raw, &items) != nil {
		return []T{replacement(raw)}
	}
	var list []T
	for n, one := range items {
		var item T
		if r.Read(fmt.Sprintf("%s[%d]", path, n), one, &item) != nil {
			item = replacement(one)
		}
		list = append(list, item)
	}
	return list
}
