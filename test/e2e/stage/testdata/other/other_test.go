// Package other_test is there so that go test tests several packages.
package other_test

import "testing"

func TestNothing(*testing.T) {}
