package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Numbers of records in the archive, so that its size is limited on a busy node.
const (
	bundledEvents       = 2000
	bundledTransactions = 500
)

// agentParts are the files with the replies of the agent. All calls only read.
func agentParts(a agent) []part {
	return []part{
		{"versions.txt", func(ctx context.Context) ([]byte, error) { return versions(ctx, a) }},
		{"state.json", reply(a, operatorv1.OperationsClient.State, &operatorv1.StateRequest{})},
		{"settings.yaml", func(ctx context.Context) ([]byte, error) {
			r, err := call(ctx, a, operatorv1.OperationsClient.Settings, &operatorv1.SettingsRequest{})
			return []byte(r.GetYaml()), err
		}},
		{"attachments.json", reply(a, operatorv1.OperationsClient.Attachments, &operatorv1.AttachmentsRequest{})},
		{"events.json", func(ctx context.Context) ([]byte, error) { return events(ctx, a) }},
		{
			"transactions.json",
			reply(a, operatorv1.OperationsClient.Transactions, &operatorv1.TransactionsRequest{
				Last: bundledTransactions,
			}),
		},
		{"objects.json", reply(a, operatorv1.OperationsClient.Objects, &operatorv1.ObjectsRequest{})},
		{"why.txt", func(ctx context.Context) ([]byte, error) {
			r, err := call(ctx, a, operatorv1.OperationsClient.Why, &operatorv1.WhyRequest{})
			return []byte(strings.Join(r.GetLines(), "\n") + "\n"), err
		}},
		{"addresses.json", reply(a, operatorv1.OperationsClient.Addresses, &operatorv1.AddressesRequest{})},
		{"devices.json", reply(a, operatorv1.OperationsClient.Devices, &operatorv1.DevicesRequest{})},
		{"counters.json", reply(a, operatorv1.OperationsClient.Counters, &operatorv1.CountersRequest{})},
		{"quarantine.json", reply(a, operatorv1.OperationsClient.Quarantine, &operatorv1.QuarantineRequest{})},
		{"metrics.txt", func(ctx context.Context) ([]byte, error) { return scrape(ctx, a) }},
		{"dataplane.log", func(ctx context.Context) ([]byte, error) { return dataplaneLog(ctx, a) }},
	}
}

// reply returns a function that calls a method and returns the reply as JSON.
func reply[Request any, Reply proto.Message](
	a agent, m method[Request, Reply], req Request,
) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		r, err := call(ctx, a, m, req)
		if err != nil {
			return nil, err
		}
		return indented(document.Of(r.ProtoReflect()))
	}
}

func versions(ctx context.Context, a agent) ([]byte, error) {
	state, err := call(ctx, a, operatorv1.OperationsClient.State, &operatorv1.StateRequest{})
	text := fmt.Sprintf("weftctl    %s\nagent      %s\ndataplane  %s\n", version.String(), orDash(state.GetVersion()),
		orDash(state.GetDataplane()))
	return []byte(text), err
}

func events(ctx context.Context, a agent) ([]byte, error) {
	records, err := readEvents(ctx, a, &operatorv1.EventsRequest{Last: bundledEvents})
	return withError(map[string]any{"events": messages[*operatorv1.EventRecord](records)}, err)
}

// withError returns a value as JSON, with an error of its reading.
func withError(v any, err error) ([]byte, error) {
	raw, marshalErr := indented(v)
	return raw, errors.Join(err, marshalErr)
}

// scrape reads the metrics at the address of the agent's settings.
func scrape(ctx context.Context, a agent) ([]byte, error) {
	settings, err := settingsOf(ctx, a)
	if err != nil {
		return nil, err
	}
	if settings.HTTP.Listen == "" {
		return []byte("no metrics are served: http.listen is empty\n"), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+settings.HTTP.Listen+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without the proxy of the environment
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPart+1))
}

// settings are the settings of the agent that the archive uses.
type settings struct {
	HTTP      struct{ Listen string }
	Dataplane struct{ Type, Log string }
}

func settingsOf(ctx context.Context, a agent) (s settings, err error) {
	r, err := call(ctx, a, operatorv1.OperationsClient.Settings, &operatorv1.SettingsRequest{})
	if err != nil {
		return s, err
	}
	if err := yaml.Unmarshal([]byte(r.Yaml), &s); err != nil {
		return s, fmt.Errorf("settings of the agent: %w", err)
	}
	return s, nil
}

// machineFiles are files of the kernel and the system that explain failures. None has secrets; the kernel's command
// line may.
var machineFiles = []string{
	"/etc/os-release", "/proc/uptime", "/proc/loadavg", "/proc/meminfo", "/proc/net/dev",
	"/proc/modules", "/proc/pressure/cpu",
	"/proc/pressure/memory", "/proc/sys/fs/aio-nr", "/proc/sys/fs/aio-max-nr",
	"/proc/sys/fs/file-nr", "/proc/sys/net/ipv4/ip_forward",
	"/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/user/max_net_namespaces",
}

// machine describes kernel, processors and memory.
func machine(context.Context) ([]byte, error) {
	var text bytes.Buffer
	var u unix.Utsname
	err := unix.Uname(&u)
	fmt.Fprintf(&text, "kernel %s %s %s\nprocessors %d\n", unix.ByteSliceToString(u.Sysname[:]),
		unix.ByteSliceToString(u.Release[:]),
		unix.ByteSliceToString(u.Machine[:]), runtime.NumCPU())
	for _, path := range machineFiles {
		content, readErr := os.ReadFile(path)
		if readErr != nil {
			if !errors.Is(readErr, os.ErrNotExist) {
				err = errors.Join(err, readErr)
			}
			continue
		}
		fmt.Fprintf(&text, "\n--- %s\n%s", path, content)
	}
	return text.Bytes(), err
}
