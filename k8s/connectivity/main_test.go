package connectivity_test

import (
	"testing"

	"go.uber.org/goleak"
)

// client-go's heartbeat of a connection ends at its next tick, up to five seconds after the connection.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}
