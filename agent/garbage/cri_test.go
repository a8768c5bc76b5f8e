package garbage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/weftnet/weft/agent/config"
	testcri "github.com/weftnet/weft/test/cri"
)

func TestTheContainerRuntimeIsAskedForAllSandboxes(t *testing.T) {
	all := []*cri.PodSandbox{
		{Id: "a", State: cri.PodSandboxState_SANDBOX_READY}, {Id: "b", State: cri.PodSandboxState_SANDBOX_NOTREADY},
	}
	socket := testcri.Serve(t, &testcri.Runtime{Sandboxes: func() *[]*cri.PodSandbox { return &all }})
	before := runtimeSockets
	t.Cleanup(func() { runtimeSockets = before })
	runtimeSockets = []string{filepath.Join(t.TempDir(), "away"), t.TempDir(), socket}
	for _, setting := range []string{socket, config.Auto} {
		got, err := ContainerRuntime{Socket: setting}.Sandboxes(t.Context())
		if err != nil || fmt.Sprint(got) != "map[a:true b:true]" {
			t.Errorf("%s: %v, %v", setting, got, err)
		}
	}
	runtimeSockets = runtimeSockets[:2]
	for _, setting := range []string{config.NoRuntime, config.Auto} {
		if got, err := (ContainerRuntime{Socket: setting}).Sandboxes(t.Context()); got != nil || err != nil {
			t.Errorf("%s: %v, %v", setting, got, err)
		}
	}
}

func TestAContainerRuntimeThatDoesNotAnswerIsAnError(t *testing.T) {
	refusing := testcri.Serve(t, &testcri.Runtime{Err: errors.New("shutting down")})
	for _, socket := range []string{refusing, filepath.Join(t.TempDir(), "away")} {
		if got, err := (ContainerRuntime{Socket: socket}).Sandboxes(t.Context()); err == nil || got != nil ||
			!strings.Contains(err.Error(), socket) {
			t.Errorf("%s: %v, %v", socket, got, err)
		}
	}
}
