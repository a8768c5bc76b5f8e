package cni

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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

const usage = `weft-cni is the CNI plugin of Weft. A container runtime starts it with CNI_COMMAND set. Under the name
weft-ipam it is an IPAM plugin, which allocates addresses for interfaces of other plugins.

Without CNI_COMMAND:
  weft-cni --version                       print the version
  weft-cni --check-agent [--socket PATH]   report whether the agent serves pods
  weft-cni --help                          print this

`

// terminal is the command line, used without CNI_COMMAND.
type terminal struct {
	out, err io.Writer
	program  string
}

// run returns the exit code.
func (t terminal) run(version string, args []string) int {
	flags := flag.NewFlagSet(t.program, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	showVersion := flags.Bool("version", false, "")
	checkAgent := flags.Bool("check-agent", false, "")
	settings, _ := readNode() // the defaults, if the file is invalid
	socket := flags.String("socket", settings.Socket, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		t.print(t.out, usage+specification())
		return exitOK
	case err != nil:
		t.print(t.err, t.program+": "+err.Error()+"\n")
	case *showVersion && flags.NArg() == 0:
		t.print(t.out, version+"\n")
		return exitOK
	case *checkAgent && flags.NArg() == 0:
		return t.checkAgent(*socket, version)
	}
	t.print(t.err, usage+specification())
	return exitUsage
}

// print ignores errors: there is no other place to report them.
func (terminal) print(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func specification() string {
	return "CNI specification: " + strings.Join(supported.SupportedVersions(), ", ") + "\n"
}

func (t terminal) checkAgent(socket, version string) int {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	_, err := askStatus(ctx, socket, &weftv1.StatusRequest{
		Caller: &weftv1.Caller{Version: version, Protocol: weftv1.Protocol},
	})
	if err == nil {
		t.print(t.out, "the agent at "+socket+" is ready\n")
		return exitOK
	}
	refusal := &types.Error{Msg: err.Error()}
	if e, ok := errors.AsType[*types.Error](err); ok {
		refusal = sanitise("STATUS", e)
	}
	t.print(t.err, fmt.Sprintf("%s: code %d: %s\n", t.program, refusal.Code, refusal))
	return exitFailed
}
