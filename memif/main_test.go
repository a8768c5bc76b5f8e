package memif

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/vswitch/confine"
)

// brokerArgument makes this program a broker process.
const brokerArgument = "memif-broker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == brokerArgument {
		err := ServeBroker(func() {
			if err := confine.Broker(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == hogArgument {
		if err := hog(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
