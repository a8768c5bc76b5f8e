// Package secrets_test gives the programs marked texts wherever something comes in, and looks for them wherever something
// leaves.
package secrets_test

import (
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
