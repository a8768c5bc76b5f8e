package weft_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// served maps functions that register the product's gRPC services to the services.
var served = map[string]grpc.ServiceDesc{
	"RegisterDataplaneServer":    operatorv1.Dataplane_ServiceDesc,
	"RegisterOperationsServer":   operatorv1.Operations_ServiceDesc,
	"RegisterPlanningServer":     operatorv1.Planning_ServiceDesc,
	"RegisterPacketsServer":      operatorv1.Packets_ServiceDesc,
	"RegisterRemoteCNIServer":    weftv1.RemoteCNI_ServiceDesc,
	"RegisterHealthServer":       grpc_health_v1.Health_ServiceDesc,
	"RegisterDevicePluginServer": deviceplugin.DevicePlugin_ServiceDesc,
}

// served by a library: kubeletplugin.Start registers these.
var servedByDRA = []grpc.ServiceDesc{
	registerapi.Registration_ServiceDesc, drapb.DRAPlugin_ServiceDesc, drahealth.DRAResourceHealth_ServiceDesc,
}

// listening are the files that listen on sockets, with the beginnings of their rows in the table of sockets.
var listening = map[string][]string{
	"agent/web/web.go":             {"TCP 127.0.0.1:9465"},
	"cmd/weft-agent/controller.go": {"TCP 127.0.0.1:9879"},
	"agent/socket.go":              {"`/run/weft/agent.sock`"},
	"agent/debug/debug.go":         {"`/run/weft/debug.sock`"},
	"agent/ui/serve.go":            {"`/run/weft/ui.sock`", "TCP on loopback (`ui.listen`)"},
	"ctl/ui.go":                    {"TCP on 127.0.0.1, a random port"},
	"devicemanager/server.go":      {"kubelet's `device-plugins/weft-memif.sock`"},
	"k8s/dra/driver.go": {
		"kubelet's `plugins_registry/memif.contivpp.io-reg.sock` and `plugins/memif.contivpp.io/dra.sock`",
	},
	"vswitch/run.go": {
		"`/run/weft/vswitch-api.sock`", "`/run/weft/vswitch-api.sock.handover`", "`/run/weft/vswitch-stats.sock`",
	},
	"memif/bind.go":                {"`memif.sock`"},
	"internal/probe/serve.go":      {"TCP and UDP port 8070"},
	"dataplane/vpp/statsmirror.go": {"a socket in a private directory"},
}

// profiled is the only file that may serve profiles. Its socket is one of root, and its handlers are registered one by
// one.
const profiled = "agent/debug/debug.go"

var (
	registration = regexp.MustCompile(`\b(Register\w+Server)\(`)
	route        = regexp.MustCompile(`\.Handle(?:Func)?\("([^"]+)"`)
	listens      = regexp.MustCompile(
		`\bnet\.Listen\w*\(|\bListenConfig\b|\b(?:unix|syscall)\.Listen\(|\bunixsocket\.\w+\(`)
	debugging = regexp.MustCompile(
		`"(net/http/pprof|runtime/pprof|expvar|google\.golang\.org/grpc/(reflection|admin|channelz)\S*)"|http\.DefaultServeMux|\bhttp\.Handle(Func)?\(`)
	named = regexp.MustCompile("`([a-z0-9.]+\\.[A-Z]\\w+/\\w+|(?:GET|POST|PUT|PATCH|DELETE) /\\S*)`")
)

func TestSecurityPageNamesAllInterfaces(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Surfaces\n")
	section, _, _ = strings.Cut(section, "\n## ")
	sources := productSources(t)
	want := surfaces(t, sources)
	have := found(named, section)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !have[name] {
			t.Errorf("docs/security.md does not name %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !want[name] {
			t.Errorf("docs/security.md names %s, which no program serves", name)
		}
	}
	for file, text := range sources {
		rows := listening[file]
		// its callers are listed
		if is := listens.MatchString(text); is != (len(rows) > 0) && file != "internal/unixsocket/listen.go" {
			t.Errorf("%s listens: %t; the table of sockets has %q", file, is, rows)
		}
		for _, row := range rows {
			if !strings.Contains(section, "\n| "+row) {
				t.Errorf("docs/security.md has no row %q, of %s", row, file)
			}
		}
		if match := debugging.FindString(text); match != "" && !(file == profiled && match == `"runtime/pprof"`) {
			t.Errorf("%s: %s serves something that the tables lack", file, match)
		}
	}
}

// surfaces returns the gRPC methods and HTTP paths that the sources serve.
func surfaces(t *testing.T, sources map[string]string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for file, text := range sources {
		maps.Copy(all, found(route, text))
		if strings.Contains(text, "kubeletplugin.Start(") {
			for _, service := range servedByDRA {
				addMethods(all, service)
			}
		}
		for function := range found(registration, text) {
			service, known := served[function]
			if !known {
				t.Errorf("%s calls %s, which is not in served", file, function)
			}
			addMethods(all, service)
		}
	}
	if len(all) < 25 {
		t.Errorf("found %d methods and paths", len(all))
	}
	return all
}

func addMethods(all map[string]bool, service grpc.ServiceDesc) {
	for _, m := range service.Methods {
		all[service.ServiceName+"/"+m.MethodName] = true
	}
	for _, s := range service.Streams {
		all[service.ServiceName+"/"+s.StreamName] = true
	}
}

// productSources returns the hand-written Go files of the programs, by path.
func productSources(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == "test" || path == "tools" || path == "bin" || strings.HasSuffix(path, "test") ||
			path == "memif/examples" || path != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		sources[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
