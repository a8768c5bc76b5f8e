// Package secrets_test puts secrets into every input of the programs, and searches all their outputs.
package secrets_test

import (
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }
