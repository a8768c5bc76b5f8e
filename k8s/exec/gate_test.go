package exec

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// The library may write after Run has returned, when the caller already reads its buffer.
func TestClosedGatePassesNothingOn(t *testing.T) {
	var out bytes.Buffer
	g := gateTo(&out, nil)
	if _, err := g.Write([]byte("before")); err != nil {
		t.Error(err)
	}
	g.close()
	if n, err := g.Write([]byte("after")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%d bytes written after the end, error %v", n, err)
	}
	if out.String() != "before" {
		t.Errorf("the caller has %q", out.String())
	}
}
