// Package admission_test evaluates the expressions of Weft's admission policies as an API server does, with the API
// server's plugin, on valid requests and on attacks. It is a module of its own, because the API server's library needs
// thirty modules that Weft does not.
package admission_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // informers log
	os.Exit(m.Run())
}
