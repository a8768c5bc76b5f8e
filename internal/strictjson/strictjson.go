// Package strictjson reads JSON documents in which an unknown or a repeated field is an error.
package strictjson

import (
	"errors"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/weftnet/weft/internal/jsonerror"
)

// Unmarshal reads a document as encoding/json does, and rejects fields that are unknown, repeated, or written in
// another case. Its error is one line that names fields by their paths, and no types of Go. After an error the value is
// undefined.
func Unmarshal(document []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(document, into)
	if err != nil {
		return jsonerror.Plain(err)
	}
	if len(strict) == 0 {
		return nil
	}
	reasons := make([]string, len(strict))
	for i, err := range strict {
		reasons[i] = err.Error()
	}
	return errors.New(strings.Join(reasons, ", "))
}
