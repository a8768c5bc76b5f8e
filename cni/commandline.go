package cni

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Exit codes of the command line.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `weft-cni is the CNI plugin of Weft: a container runtime starts it with CNI_COMMAND set.

For people:
  weft-cni --version                       print the version
  weft-cni --check-agent [--socket PATH]   ask the agent whether it would serve a pod
  weft-cni --help                          print this

`

// commandLine serves people: there is no CNI_COMMAND.
func commandLine(version string, args []string) int {
	flags := flag.NewFlagSet("weft-cni", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	showVersion := flags.Bool("version", false, "")
	checkAgent := flags.Bool("check-agent", false, "")
	socket := flags.String("socket", defaults().Socket, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage + specification())
		return exitOK
	case err != nil:
		fmt.Fprintln(os.Stderr, "weft-cni:", err)
	case *showVersion && flags.NArg() == 0:
		fmt.Println(version)
		return exitOK
	case *checkAgent && flags.NArg() == 0:
		return checkAgentAt(*socket, version)
	}
	fmt.Fprint(os.Stderr, usage+specification())
	return exitUsage
}

func specification() string {
	return "CNI specification: " + strings.Join(supported.SupportedVersions(), ", ") + "\n"
}

func checkAgentAt(socket, version string) int {
	err := askStatus(socket, &weftv1.Caller{Version: version, Protocol: weftv1.Protocol}, "")
	if err == nil {
		fmt.Printf("the agent at %s is ready\n", socket)
		return exitOK
	}
	refusal := &types.Error{Msg: err.Error()}
	if e, ok := errors.AsType[*types.Error](err); ok {
		refusal = presentable("STATUS", e)
	}
	fmt.Fprintf(os.Stderr, "weft-cni: code %d: %s\n", refusal.Code, refusal)
	return exitFailed
}
