package api

import (
	"fmt"
	"strconv"
	"strings"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/vswitch/forward"
)

// maxCommand bounds what of a command is said back to who sent one that is unknown.
const maxCommand = 200

// addCLI adds cli_inband: a few of VPP's debug commands, for people.
func (s *Server) addCLI() {
	handle(s, func(_ *client, r *vlib.CliInband) (*vlib.CliInbandReply, error) {
		return &vlib.CliInbandReply{Reply: s.command(r.Cmd)}, nil
	})
}

// command runs one command. As VPP's CLI it says what is wrong with one in its output.
func (s *Server) command(line string) string {
	line, _, _ = strings.Cut(line, "\x00")
	words := strings.Fields(line)
	switch joined := strings.Join(words, " "); {
	case joined == "show version":
		return fmt.Sprintf("%s v%s\n", program, version)
	case joined == "show interface" || joined == "show int":
		return s.showInterfaces()
	case joined == "show errors" || joined == "show error":
		return s.showErrors()
	case joined == "show memif":
		return s.showMemifs()
	case joined == "show trace":
		return s.showTrace()
	case joined == "clear trace":
		s.model.SetTrace(0)
		return ""
	case strings.HasPrefix(joined, "trace add "):
		return s.addTrace(words[2:])
	case strings.HasPrefix(joined, "show bridge-domain"):
		return s.showBridges(words[2:])
	case strings.HasPrefix(joined, "show l2fib"):
		return s.showL2FIB(words[2:])
	case strings.HasPrefix(joined, "show ip neighbors"), strings.HasPrefix(joined, "show ip neighbor"):
		return s.showNeighbours()
	case strings.HasPrefix(joined, "show ip fib"):
		return s.showFIB(forward.IP4, words[3:])
	case strings.HasPrefix(joined, "show ip6 fib"):
		return s.showFIB(forward.IP6, words[3:])
	}
	return unknownInput(words)
}

// unknownInput is what VPP says of a command that it does not know.
func unknownInput(words []string) string {
	joined := strings.ToValidUTF8(strings.Join(words, " "), "?")
	return fmt.Sprintf("unknown input `%.*s'\n", maxCommand, joined)
}

// addTrace serves "trace add <node> <n>"; every port is an input node here, so any node's name will do.
func (s *Server) addTrace(words []string) string {
	if len(words) != 2 {
		return unknownInput(append([]string{"trace", "add"}, words...))
	}
	n, err := strconv.ParseUint(words[1], 10, 31)
	if err != nil {
		return unknownInput(words[1:])
	}
	s.model.SetTrace(int(n))
	return ""
}
